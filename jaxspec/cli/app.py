"""Entry point: exit codes and the one-line form of bad input. Commands are loaded when called, so that `--help` is quick."""

from __future__ import annotations

import errno
import importlib
import sys

import click

from jaxspec.cli.usage import unknown_command, usage_line
from jaxspec.errors import InputError

_COMMANDS = {
    "tune": "jaxspec.cli.tune",
    "evaluate": "jaxspec.cli.evaluate",
    "tree": "jaxspec.cli.tree",
    "predict": "jaxspec.cli.predict",
    "sweep": "jaxspec.cli.sweep",
    "pack": "jaxspec.cli.containers",
    "unpack": "jaxspec.cli.containers",
    "inspect": "jaxspec.cli.containers",
    "devices": "jaxspec.cli.catalogs",
    "models": "jaxspec.cli.catalogs",
}

#: True of every command: runs keep their stages, all other files appear whole or not at all.
_INTERRUPTED = "interrupted; nothing is half-written, and the same command goes on (a run from its last stage)"

#: Failures of the disk, not ours: said in one line.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        return getattr(importlib.import_module(_COMMANDS[cmd_name]), cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args and args[0] not in _COMMANDS:
            raise unknown_command(args[0], _COMMANDS, ctx)
        return super().resolve_command(ctx, args)


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="jaxspec")
def cli() -> None:
    """Which draft to build for speculative decoding of a language model on a device, how fast it will be, and why.

    \b
    jaxspec tune                                  the whole path on the embedded network, RTX 4090
    jaxspec tune --device rtx-4090,jetson-agx-orin,cassandra-npu
    jaxspec tune --quick                          the same in under a minute, with wider error bars
    jaxspec predict --acceptance 0.9 --draft-bits 4.5      no network: shapes, device, acceptance
    jaxspec sweep --example > sweep.toml; jaxspec sweep sweep.toml     any numbers, every combination, to Parquet
    jaxspec evaluate --weight-prune 0.3 --weight-cut-bits 5
    jaxspec tree --device rtx-4090,alveo-v80      the draft tree to verify, at every context length
    jaxspec pack DIR -o model.jspk                a lossless container with the draft inside; unpack, inspect
    jaxspec devices                               what may stand behind --device

    Exit codes: 0 done ("no draft pays" is an answer), 1 our own bug, 2 bad input, 130 interrupted and resumable.
    """


def _disk_error(error: BaseException | None) -> OSError | None:
    """The disk's refusal behind an exception, however libraries wrapped it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return error
        error = error.__cause__ or error.__context__
    return None


def _fail(message: str, code: int) -> None:
    print(f"jaxspec: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        cli.main(args=arguments, prog_name="jaxspec", standalone_mode=False)
    except InputError as error:
        _fail(str(error), 2)
    except click.exceptions.Abort:
        _fail(_INTERRUPTED, 130)
    except KeyboardInterrupt:
        _fail(_INTERRUPTED, 130)
    except click.ClickException as error:
        _fail(usage_line(error), 2)
    except Exception as error:
        if (refusal := _disk_error(error)) is None:
            raise
        where = f" {refusal.filename!r}" if refusal.filename else ""
        _fail(f"cannot write{where} ({refusal.strerror}); free the disk or give another --out, then run it again", 2)
    sys.exit(0)
