"""Entry point: exit codes and the one-line form of bad input. Commands are loaded when called, so that `--help` is quick."""

from __future__ import annotations

import errno
import select
import sys
from typing import Any, TextIO

import click

from jaxspec.cleanup import PENDING
from jaxspec.cli.options import Command, Group, unknown_command, usage_line
from jaxspec.cli.process import INTERRUPTED, discard_output
from jaxspec.cli.study_command import study_command
from jaxspec.errors import InputError, ReportedByRank0Error, printable
from jaxspec.kept_programs import keep_programs as keep_compiled
from jaxspec.registries import load_object, tell_by
from jaxspec.studies.study import STUDIES, find_study

#: Commands that are no studies -> module of the same-named command.
_OTHERS = {
    "unpack": "jaxspec.cli.containers",
    "inspect": "jaxspec.cli.containers",
    "devices": "jaxspec.cli.catalogs",
    "models": "jaxspec.cli.catalogs",
    "runs": "jaxspec.cli.runs",
}

#: How `tempfile` says that it can write nowhere.
_NO_TEMPORARY = "No usable temporary directory"

#: Failures of the disk, not ours: said in one line.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS}


#: Exit code where the reader of the output went away, as `head` does: what the shell says of other programs then.
READER_LEFT = 141


class _Elsewhere(Command):
    """A command of an installed package, which is loaded when it is called: a list of commands waits for none of them."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if self.name not in STUDIES:
            raise InputError(f"command {self.name!r} cannot be loaded; the line above says why")
        return study_command(find_study(str(self.name))).make_context(info_name, args, parent, **extra)


class _LazyGroup(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*STUDIES.names(), *_OTHERS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (package := STUDIES.packages().get(cmd_name)) is not None:
            return _Elsewhere(cmd_name, short_help=f"Of {package}; jaxspec {cmd_name} --help explains it.")
        if cmd_name in STUDIES:
            return study_command(find_study(cmd_name))
        return load_object(f"{_OTHERS[cmd_name]}:{cmd_name}") if cmd_name in _OTHERS else None

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args and args[0] not in self.list_commands(ctx):
            raise unknown_command(args[0], self.list_commands(ctx), ctx)
        return super().resolve_command(ctx, args)


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="jaxspec")
@click.option(
    "--keep-programs/--no-keep-programs",
    default=True,
    envvar="JAXSPEC_KEEP_PROGRAMS",
    help="Keep compiled programs in the user's cache folder, so that the next command starts sooner; results stay the same.",
)
def cli(keep_programs: bool) -> None:
    """Find the best draft for speculative decoding of a language model on a device, and predict how fast it will be.

    \b
    Begin here:
      jaxspec predict --device rtx-4090 --acceptance 0.9        a prediction from shapes alone, in seconds
      jaxspec tune --quick                                      a tuned draft of the embedded network, in a minute

    \b
    Your own model, device, measurements, engine:
      jaxspec tune --model DIR --architecture own               a Hugging Face directory
      jaxspec devices --example > my.toml                       a file for --device my.toml
      jaxspec calibrate -o my-machine.toml                      measures this machine
      jaxspec advise --device h100-sxm --engine vllm            should I speculate, how, and with which flags

    \b
    Explore:
      jaxspec tree --device rtx-4090,alveo-v80                  the best draft tree, at every context length
      jaxspec compare --quick                                   drafts of every kind in one table
      jaxspec sweep --example > sweep.toml; jaxspec sweep sweep.toml
      jaxspec codesign --example npu > p.toml; jaxspec codesign p.toml

    `jaxspec COMMAND --help` explains a command. Exit codes: 0 done ("no draft pays" is a possible answer), 1 a bug of jaxspec,
    2 bad input, 130 interrupted and resumable, 141 the reader of the output stopped reading.
    """
    if keep_programs:
        keep_compiled()


def _disk_error(error: BaseException | None) -> OSError | None:
    """The disk's refusal behind an exception, however libraries wrapped it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return error
        error = error.__cause__ or error.__context__
    return None


def _fail(message: str, code: int) -> None:
    if sys.stderr is not None:  # print takes None for standard output
        try:
            print(f"jaxspec: {printable(' '.join(message.split()))}", file=sys.stderr, flush=True)
        except OSError:  # nobody reads it, and the end of the interpreter must not fail on it again
            discard_output(sys.stderr)
    sys.exit(code)


def _reader_left(error: BaseException) -> bool:
    """Whether an exception means that nobody reads what is printed, in whatever form libraries pass it on."""
    if not isinstance(error, (OSError, SystemExit)):
        return False
    causes: list[BaseException | None] = [error, error.__context__]
    if any(isinstance(cause, OSError) and cause.errno == errno.EPIPE for cause in causes):
        return True
    # Click ends with an exit code instead; the poll of a pipe without a reader tells.
    return isinstance(error, SystemExit) and error.code == 1 and any(map(_pipe_is_broken, (sys.stdout, sys.stderr)))


def _pipe_is_broken(stream: TextIO | None) -> bool:
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)  # pyright: ignore[reportOptionalMemberAccess]
        return any(state & select.POLLERR for _, state in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def _printing(error: BaseException) -> bool:
    """Whether an exception came out of printing: its message names no file then, as that of a full disk does not."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return module.partition(".")[0] in ("rich", "click") or module == __name__


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    if sys.stdout is None:
        _fail("standard output is closed; results are printed there: give it a place, such as >/dev/null", 2)
    tell_by(lambda line: print(f"jaxspec: {printable(line)}", file=sys.stderr))
    try:
        cli.main(args=arguments, prog_name="jaxspec", standalone_mode=False)
        print(end="", flush=True)
    except ReportedByRank0Error:
        sys.exit(2)
    except InputError as error:
        _fail(str(error), 2)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _fail(PENDING.line(), INTERRUPTED)
    except click.ClickException as error:
        _fail(usage_line(error), 2)
    except (Exception, SystemExit) as error:
        if _reader_left(error):
            discard_output(sys.stdout, sys.stderr)
            sys.exit(READER_LEFT)
        if isinstance(error, OSError) and _printing(error):
            discard_output(sys.stdout)
            _fail(f"the output cannot be written ({error.strerror}); send it elsewhere, then run it again", 2)
        if isinstance(error, FileNotFoundError) and _NO_TEMPORARY in str(error):  # a library asks where it is imported
            _fail(f"{error.strerror}; set TMPDIR to a folder that can be written", 2)
        if (refusal := _disk_error(error)) is None:
            raise
        where = f" {refusal.filename!r}" if refusal.filename else ""
        larger = "raise the limit of a file's size (ulimit -f)"
        remedy = larger if refusal.errno == errno.EFBIG else "free the disk or give another --out"
        _fail(f"cannot write{where} ({refusal.strerror}); {remedy}, then run it again", 2)
    sys.exit(0)
