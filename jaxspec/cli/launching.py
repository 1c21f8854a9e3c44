"""Where a command runs: on several processes of `jax.distributed`, or on the processor alone."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from jaxspec.errors import InputError

__all__ = ["Launch", "keep_to_processor", "launch_of", "launch_options"]

#: Largest port.
_PORTS = 65535

#: In the order in which help shows them.
launch_options: list[Callable[..., Any]] = [
    click.option(
        "--distributed",
        is_flag=True,
        help="Share the work among the processes that Slurm, Open MPI or another launcher known to JAX has started.",
    ),
    click.option(
        "--coordinator", metavar="HOST:PORT", help="Without a launcher: address of process 0, with a free port."
    ),
    click.option("--processes", type=int, help="Without a launcher: number of processes."),
    click.option("--process-id", type=int, help="Without a launcher: which of them this is, from 0."),
]


def keep_to_processor() -> None:
    """Run programs on the processor, unless JAX_PLATFORMS names a device, or JAX was imported before, by a caller in Python."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


@dataclasses.dataclass(frozen=True)
class Launch:
    """How processes find one another.

    Attributes:
        coordinator: HOST:PORT of process 0; None: a launcher that JAX knows says all three.
        processes: how many there are.
        process_id: which one this is, from 0.

    Raises:
        InputError: one of the three without the others, or one that cannot be meant.
    """

    coordinator: str | None = None
    processes: int | None = None
    process_id: int | None = None

    def __post_init__(self) -> None:
        given = {
            "--coordinator": self.coordinator,
            "--processes": self.processes,
            "--process-id": self.process_id,
        }
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == len(given):
            return
        if missing:
            raise InputError(
                f"{' and '.join(missing)} did not come; give all of {', '.join(given)}, or --distributed alone under a launcher"
            )
        assert self.coordinator is not None
        assert self.processes is not None
        assert self.process_id is not None
        host, _, port = self.coordinator.rpartition(":")
        if not host or not (port.isdecimal() and 0 < int(port) <= _PORTS):
            raise InputError(
                f"--coordinator is {self.coordinator!r}; give address and free port of process 0, as in 10.0.0.1:1234"
            )
        if self.processes < 1:
            raise InputError(f"--processes is {self.processes}; it must be at least 1")
        if not 0 <= self.process_id < self.processes:
            raise InputError(
                f"--process-id is {self.process_id}; {self.processes} processes are numbered 0 to {self.processes - 1}"
            )


def launch_of(flags: dict[str, Any]) -> Launch | None:
    """The launch that flags ask for, which are taken out of them; None: this process works alone.

    Raises:
        InputError: see `Launch`.
    """
    wanted = flags.pop("distributed", False)
    given = {name: flags.pop(name, None) for name in ("coordinator", "processes", "process_id")}
    return Launch(**given) if wanted or any(value is not None for value in given.values()) else None
