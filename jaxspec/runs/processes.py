"""Processes that share a run: `jax.distributed` brings them together.

Those that share parts of the work meet in the run's directory from then on. Those that share a mesh do the same work all the
time, each on its part of every array, and process 0 alone knows the directory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NoReturn, TypeVar

import numpy as np

from jaxspec.errors import InputError, SaidElsewhereError, SaidTogetherError, one_line
from jaxspec.interruption import UNDER_WAY
from jaxspec.runs.lifelines import Lifelines

__all__ = ["ONE_PROCESS", "Processes", "ended_after", "shared_processes", "start_processes"]

#: Seconds that processes wait for one another when they start: those of a large job start minutes apart.
START_S = 300.0

#: The service of JAX would end the process with a stack trace; it gets more time, so that our own line comes first.
_LONGER_S = 600

#: What `jax.distributed` finds out by itself.
_LAUNCHERS = "Slurm (srun), Open MPI (mpirun), Kubernetes and Cloud TPU"

#: Those that the command line started and that have not met yet.
_STARTED: list[Processes] = []

Said = TypeVar("Said")


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a run, and which one this is.

    Attributes:
        index: of this process, from 0, which owns the run directory.
        count: how many there are.
        meet: waits until all have called it.
        started: whether the command line started them, for one run.
    """

    index: int = 0
    count: int = 1
    meet: Callable[[], None] = lambda: None
    started: bool = False

    def __str__(self) -> str:
        return f"process {self.index} of {self.count}"

    @property
    def owns(self) -> bool:
        """Whether this one writes the run directory and speaks to the user."""
        return self.index == 0

    @contextlib.contextmanager
    def kept_together(self) -> Iterator[None]:
        """Within the block, all processes do the same work; those of a command end where one of them ends, those of a program
        of the user's own as JAX ends them."""
        lines = None
        try:
            if self.count > 1:
                self._check_devices()
                lines = Lifelines(self) if self.started else None
            yield
        except (SaidTogetherError, SaidElsewhereError):
            self._part(lines)
            raise
        except BaseException as error:
            if lines is not None:
                lines.fail(error)
            raise
        self._part(lines)

    def _part(self, lines: Lifelines | None) -> None:
        """The end of what all processes do together, to which all have come."""
        if lines is not None:
            lines.release()
        if self.started:
            self.meet()

    def _check_devices(self) -> None:
        """Raise on every process if they have unequal numbers of devices: what they tell each other goes from one to one."""
        import jax

        counts = Counter(device.process_index for device in jax.devices())
        if len(set(counts.values())) == 1:
            return
        self._refuse(
            f"processes have {', '.join(map(str, counts.values()))} devices; start each with as many as the others"
        )

    def _refuse(self, line: str) -> NoReturn:
        """End what all processes have found to be bad input; process 0 says why."""
        if not self.owns:
            raise SaidElsewhereError
        raise SaidTogetherError(line)

    def told(self, value: Said) -> Said:
        """What process 0 gives, whatever the others do: anything that can be pickled. All processes call this together."""
        if self.count == 1:
            return value
        from jax.experimental.multihost_utils import broadcast_one_to_all

        said = pickle.dumps(value) if self.owns else b""
        size = int(broadcast_one_to_all(np.int32(len(said))))
        return pickle.loads(broadcast_one_to_all(_padded(said, size))[:size].tobytes())

    def done_once(self, work: Callable[[], Said]) -> Said:
        """What `work` finds on process 0, the only one that does it, for work that could end otherwise on another machine, such
        as running a program within limits of time. All processes call this together."""
        if self.count == 1:
            return work()
        found = work() if self.owns else None
        return self.told(found)  # pyright: ignore[reportReturnType] -- what process 0 has found

    def every(self, value: Said) -> list[Said]:
        """What each process gives, in their order. All processes call this together."""
        if self.count == 1:
            return [value]
        from jax.experimental.multihost_utils import process_allgather

        said = pickle.dumps(value)
        sizes = process_allgather(np.int32(len(said)))
        rows = process_allgather(_padded(said, int(sizes.max())))
        return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]

    def agreed(self, work: Callable[[], Said]) -> Said:
        """Do what may find bad input on any process; where one does, all end, and process 0 alone says why.

        Raises:
            SaidTogetherError: on process 0; SaidElsewhereError on the others.
        """
        if self.count == 1:
            return work()
        found, error = None, ""
        try:
            found = work()
        except InputError as said:
            error = str(said)
        errors = self.every(error)
        if not any(errors):
            return found  # pyright: ignore[reportReturnType] -- the work has returned
        index, line = next((index, line) for index, line in enumerate(errors) if line)
        self._refuse(line if index == 0 else f"process {index} of {self.count}: {line}")

    def check_alike(self, facts: Mapping[str, Any]) -> None:
        """Compare facts that have to be the same everywhere.

        Raises:
            InputError: some differ; see `agreed`.
        """

        def check() -> None:
            for index, theirs in enumerate(every):
                names = sorted({*theirs, *facts})
                # As text, since no NaN equals another.
                if differing := [name for name in names if repr(theirs.get(name)) != repr(every[0].get(name))]:
                    raise InputError(
                        f"process {index} of {self.count} differs from process 0 in {', '.join(differing)}; start all "
                        "with the same command, files and versions, on devices of one kind"
                    )

        every = self.every(dict(facts))
        self.agreed(check)


#: Most runs are those of one.
ONE_PROCESS = Processes()


def _padded(said: bytes, size: int) -> np.ndarray:
    """In one of few sizes, each of which is compiled for."""
    found = np.zeros(1 << max(10, (size - 1).bit_length()), np.uint8)
    found[: len(said)] = np.frombuffer(said, np.uint8)
    return found


def start_processes(
    coordinator: str | None = None, processes: int | None = None, process_id: int | None = None
) -> Processes:
    """Wait for the other processes, before anything computes.

    When they `meet`, the service that brought them together ends: while it runs, it ends all processes soon after one dies.

    Args:
        coordinator: HOST:PORT of process 0. processes: how many there are. process_id: which one this is, from 0. None: a
            launcher that JAX knows says it.
    Raises:
        InputError: no launcher is known; process 0 cannot listen. Where the others do not come, the process ends with one line
            and exit code 2.
    """
    import jax

    if coordinator is not None and process_id == 0:
        _check_port(coordinator)
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
            f"--distributed found no launcher ({one_line(error)}); JAX knows {_LAUNCHERS}: start the command "
            "with one, or give --coordinator HOST:PORT --processes N --process-id I"
        ) from error
    except RuntimeError as error:
        raise InputError(f"processes cannot be brought together at {where}: {one_line(error)}") from error

    def meet() -> None:
        late = (
            f"the other processes did not follow process {index} of {count} within {START_S:.0f} s; see their messages"
        )
        with ended_after(START_S, late):
            jax.distributed.shutdown()
        _STARTED.clear()

    _STARTED[:] = [Processes(index, count, meet, started=True)]
    return _STARTED[0]


def _check_port(coordinator: str) -> None:
    """Raise InputError where nothing can listen at the port of process 0: native code would crash on it."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    address = "", int(coordinator.rpartition(":")[2])
    try:
        # Not `create_server`, which shares a port with a server that allows it, as that of another run does.
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InputError(
            f"process 0 cannot listen at {coordinator!r} ({error.strerror}); give a free port, and --process-id 0 to one "
            "process only"
        ) from error


def shared_processes() -> Processes:
    """The processes that share what this one is asked for: those of `jax.distributed` where it runs, else this one alone."""
    import jax

    if _STARTED:
        return _STARTED[0]
    if not jax.distributed.is_initialized():
        return ONE_PROCESS

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
