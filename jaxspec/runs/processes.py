"""Processes that share a run: `jax.distributed` brings them together; from then on they meet in the run's directory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache

from jaxspec.errors import InputError
from jaxspec.interruption import UNDER_WAY

__all__ = ["Processes", "ended_after", "shared_processes", "start_processes"]

#: Seconds that processes wait for one another when they start: those of a large job start minutes apart.
START_S = 300.0

#: The service of JAX would end the process with a stack trace; it gets more time, so that our own line comes first.
_LONGER_S = 600

#: What `jax.distributed` finds out by itself.
_LAUNCHERS = "Slurm (srun), Open MPI (mpirun), Kubernetes and Cloud TPU"

#: Those that the command line started and that have not met yet.
_STARTED: list[Processes] = []


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a run, and which one this is.

    Attributes:
        index: of this process, from 0, which owns the run directory.
        count: how many there are.
        meet: waits until all have called it.
    """

    index: int = 0
    count: int = 1
    meet: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        return f"process {self.index} of {self.count}"


def start_processes(
    coordinator: str | None = None, processes: int | None = None, process_id: int | None = None
) -> Processes:
    """Wait for the other processes, before anything computes.

    When they `meet`, the service that brought them together ends: while it runs, it ends all processes as soon as one dies.

    Args:
        coordinator: HOST:PORT of process 0. processes: how many there are. process_id: which one this is, from 0. None: a
            launcher that JAX knows says it.
    Raises:
        InputError: no launcher is known; process 0 cannot listen. Where the others do not come, the process ends with one line
            and exit code 2.
    """
    import jax

    where = coordinator or "the address that the launcher says"
    line = (
        f"the processes did not find one another within {START_S:.0f} s at {where}; start all of them, process 0 on that "
        "address, and let its port through"
    )
    try:
        with ended_after(START_S, line):
            jax.distributed.initialize(
                coordinator,
                processes,
                process_id,
                initialization_timeout=int(START_S) + _LONGER_S,
                shutdown_timeout_seconds=int(START_S) + _LONGER_S,
            )
            index, count = jax.process_index(), jax.process_count()
    except ValueError as error:
        raise InputError(
            f"--distributed found no launcher ({' '.join(str(error).split())}); JAX knows {_LAUNCHERS}: start the command "
            "with one, or give --coordinator HOST:PORT --processes N --process-id I"
        ) from error
    except RuntimeError as error:
        raise InputError(f"processes cannot be brought together at {where}: {' '.join(str(error).split())}") from error

    def meet() -> None:
        late = (
            f"the other processes did not follow process {index} of {count} within {START_S:.0f} s; see their messages"
        )
        with ended_after(START_S, late):
            jax.distributed.shutdown()
        _STARTED.clear()

    _STARTED[:] = [Processes(index, count, meet)]
    return _STARTED[0]


def shared_processes() -> Processes:
    """The processes that share what this one is asked for: those of `jax.distributed` where it runs, else this one alone."""
    import jax

    if _STARTED:
        return _STARTED[0]
    if not jax.distributed.is_initialized():
        return Processes()

    @cache
    def meet() -> None:
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices("jaxspec run")

    return Processes(jax.process_index(), jax.process_count(), meet)


@contextlib.contextmanager
def ended_after(seconds: float, line: str) -> Iterator[None]:
    """End the process with a line and exit code 2 if the block takes longer, whatever native code waits in it."""

    def end() -> None:
        UNDER_WAY.abandon()
        os.write(2, f"jaxspec: {line}\n".encode())
        os._exit(2)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
