"""Processes that share a run: `jax.distributed` brings them together, and ends all of them where one dies.

All of them do the same work, each on its part of every array or of the points; process 0 alone writes the run's directory.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import pickle
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np

from jaxspec.cleanup import PENDING
from jaxspec.errors import CollectiveInputError, InputError, ReportedByRank0Error, one_line

__all__ = ["ONE_PROCESS", "Processes", "ended_after", "shared_processes", "start_processes"]

#: Seconds that processes wait for one another when they start: those of a large job start minutes apart.
START_S = 300.0

#: The service of JAX would end the process with a stack trace; it gets more time, so that our own line comes first.
_LONGER_S = 600

#: Seconds without a sign of life after which JAX takes a process for dead and ends the others.
_SILENT_S = 30

#: What `jax.distributed` finds out by itself.
_LAUNCHERS = "Slurm (srun), Open MPI (mpirun), Kubernetes and Cloud TPU"

#: Those that the command line started and that have not met yet.
_STARTED: list[Processes] = []

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a run, and which one this is.

    Attributes:
        index: of this process, from 0, which owns the run directory.
        count: how many there are.
        finish: waits until all have called it, and ends what brought them together.
        started: whether the command line started them, for one run.
    """

    index: int = 0
    count: int = 1
    finish: Callable[[], None] = lambda: None
    started: bool = False

    def __str__(self) -> str:
        return f"process {self.index} of {self.count}"

    @property
    def owns(self) -> bool:
        """Whether this one writes the run directory and speaks to the user."""
        return self.index == 0

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Within the block, all processes do the same work; those of a command part at its end."""
        try:
            if self.count > 1:
                self._check_devices()
            yield
        except (CollectiveInputError, ReportedByRank0Error):
            self._part()
            raise
        except BaseException as error:
            if self.started:  # JAX would wait for the others before the interpreter ends
                atexit.register(_exit, 2 if isinstance(error, InputError) or _is_lost_peer(error) else 1)
                if _is_lost_peer(error):
                    raise InputError(
                        f"{self} lost another process ({one_line(error)[:120]}), see its message; the same command resumes "
                        "the run"
                    ) from error
            raise
        self._part()

    def _part(self) -> None:
        if self.started:
            self.finish()

    def _check_devices(self) -> None:
        """Raise on every process if they have unequal numbers of devices: collectives go from device to device."""
        import jax

        counts = Counter(device.process_index for device in jax.devices())
        if len(set(counts.values())) == 1:
            return
        self._refuse(
            f"processes have {', '.join(map(str, counts.values()))} devices; start each with as many as the others"
        )

    def _refuse(self, line: str) -> NoReturn:
        """Raise on every process; process 0 reports the line."""
        if not self.owns:
            raise ReportedByRank0Error
        raise CollectiveInputError(line)

    def broadcast(self, value: Value) -> Value:
        """Process 0's value on all, which can be pickled. All processes call this together."""
        if self.count == 1:
            return value
        from jax.experimental.multihost_utils import broadcast_one_to_all

        sent = pickle.dumps(value) if self.owns else b""
        size = int(broadcast_one_to_all(np.int32(len(sent))))
        return pickle.loads(broadcast_one_to_all(_padded(sent, size))[:size].tobytes())

    def run_on_rank0(self, work: Callable[[], Value]) -> Value:
        """What `work` returns on process 0, the only one that does it, on all. All processes call this together.

        For work that could end otherwise on another machine, such as running a program within limits of time.
        """
        value = work() if self.owns else None
        return self.broadcast(value)  # pyright: ignore[reportReturnType] -- the value of process 0

    def all_gather(self, value: Value) -> list[Value]:
        """Each process's value, in their order. All processes call this together."""
        if self.count == 1:
            return [value]
        from jax.experimental.multihost_utils import process_allgather

        sent = pickle.dumps(value)
        sizes = process_allgather(np.int32(len(sent)))
        rows = process_allgather(_padded(sent, int(sizes.max())))
        return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]

    def all_or_raise(self, work: Callable[[], Value]) -> Value:
        """Do work that may raise InputError on any process; where one does, all raise, and process 0 alone reports it.

        Raises:
            CollectiveInputError: on process 0; ReportedByRank0Error on the others.
        """
        if self.count == 1:
            return work()
        value, message = None, ""
        try:
            value = work()
        except InputError as error:
            message = str(error)
        errors = self.all_gather(message)
        if not any(errors):
            return value  # pyright: ignore[reportReturnType] -- the work has returned
        index, line = next((index, line) for index, line in enumerate(errors) if line)
        self._refuse(line if index == 0 else f"process {index} of {self.count}: {line}")

    def check_alike(self, facts: Mapping[str, Any]) -> None:
        """Compare facts that have to be the same everywhere.

        Raises:
            InputError: some differ; see `all_or_raise`.
        """

        def check() -> None:
            for index, theirs in enumerate(gathered):
                names = sorted({*theirs, *facts})
                # As text, since no NaN equals another.
                if differing := [name for name in names if repr(theirs.get(name)) != repr(gathered[0].get(name))]:
                    raise InputError(
                        f"process {index} of {self.count} differs from process 0 in {', '.join(differing)}; start all "
                        "with the same command, files and versions, on devices of one kind"
                    )

        gathered = self.all_gather(dict(facts))
        self.all_or_raise(check)


#: Most runs are those of one.
ONE_PROCESS = Processes()


def _padded(sent: bytes, size: int) -> np.ndarray:
    """In one of few sizes, each of which is compiled for."""
    return np.frombuffer(sent.ljust(1 << max(10, (size - 1).bit_length()), b"\0"), np.uint8)


def _is_lost_peer(error: BaseException) -> bool:
    """Whether an exchange between devices failed because a process has ended."""
    return type(error).__name__ == "JaxRuntimeError" and any(
        word in str(error) for word in ("Gloo", "gloo", "onnection")
    )


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def start_processes(
    coordinator: str | None = None, processes: int | None = None, process_id: int | None = None
) -> Processes:
    """Wait for the other processes, before anything computes.

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
                heartbeat_timeout_seconds=_SILENT_S,
            )
            index, count = jax.process_index(), jax.process_count()
    except ValueError as error:
        raise InputError(
            f"--distributed found no launcher ({one_line(error)}); JAX knows {_LAUNCHERS}: start the command "
            "with one, or give --coordinator HOST:PORT --processes N --process-id I"
        ) from error
    except RuntimeError as error:
        raise InputError(f"processes cannot be brought together at {where}: {one_line(error)}") from error

    def finish() -> None:
        late = (
            f"the other processes did not follow process {index} of {count} within {START_S:.0f} s; see their messages"
        )
        with ended_after(START_S, late):
            jax.distributed.shutdown()
        _STARTED.clear()

    _STARTED[:] = [Processes(index, count, finish, started=True)]
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

    return Processes(jax.process_index(), jax.process_count())


@contextlib.contextmanager
def ended_after(seconds: float, line: str) -> Iterator[None]:
    """End the process with a line and exit code 2 if the block takes longer, whatever native code waits in it."""

    def end() -> None:
        PENDING.abandon()
        os.write(2, f"jaxspec: {line}\n".encode())
        os._exit(2)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
