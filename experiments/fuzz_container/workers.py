"""Runs cases in processes of their own, which may hang or die without harm: that is a result too."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import NamedTuple

__all__ = ["Result", "run_cases"]

#: A worker is replaced after so many cases: compiled code is never given back.
CASES_PER_WORKER = 1500

#: Address space that a worker may take above what it has when it is ready, so that no case harms the machine.
_MOST_ADDRESS_SPACE = 8 << 30

#: Seconds for a worker to get ready.
_STARTING = 600.0


class Result(NamedTuple):
    """What came of a case.

    Attributes:
        label: which kind of case it was.
        outcome: "refused", "intact" and "other" are good; "wrong", "raised", "slow", "memory", "hung" and "died" are not.
        detail: of a failure.
        seconds, peak_bytes: what it took.
    """

    case: int
    label: str
    outcome: str
    detail: str
    seconds: float
    peak_bytes: int

    @property
    def failed(self) -> bool:
        """Whether this is a defect."""
        return self.outcome not in ("refused", "intact", "other")


def _serve(setup: Callable[[], Callable[[int], Result]], cases: range, channel: Connection) -> None:
    run = setup()
    with open("/proc/self/statm", encoding="ascii") if os.path.exists("/proc/self/statm") else open(os.devnull) as file:
        pages = file.read().split()
    if pages:
        limit = int(pages[0]) * os.sysconf("SC_PAGE_SIZE") + _MOST_ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    channel.send(None)
    for case in cases:
        channel.send(run(case))
    channel.close()


class _Worker:
    """A process at work on a range of cases."""

    def __init__(self, setup: Callable[[], Callable[[int], Result]], cases: range):
        context = multiprocessing.get_context("spawn")
        self.channel, theirs = context.Pipe(duplex=False)
        self.cases, self.next, self.ready = cases, cases.start, False
        self.since = time.monotonic()
        self._process = context.Process(target=_serve, args=(setup, cases, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def stop(self) -> int | None:
        """End the process; its exit code, None if it had to be killed."""
        self._process.join(timeout=0.5)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            self._process.join()
        self.channel.close()
        return code


def run_cases(
    setup: Callable[[], Callable[[int], Result]],
    cases: range,
    *,
    workers: int,
    seconds_per_case: float,
    cases_per_worker: int = CASES_PER_WORKER,
) -> Iterator[Result]:
    """The results of all cases, in whatever order they come.

    Args:
        setup: makes the function that runs a case; called once in each process, and must be picklable.
        seconds_per_case: a case that takes longer is given up with its process.
    Raises:
        RuntimeError: a worker does not get ready.
    """
    waiting = [cases[i : i + cases_per_worker] for i in range(0, len(cases), cases_per_worker)][::-1]
    busy: list[_Worker] = []
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                busy.append(_Worker(setup, waiting.pop()))
            answering = wait([worker.channel for worker in busy], timeout=0.5)
            for worker in list(busy):
                if worker.channel in answering:
                    yield from _receive(worker, busy, waiting)
                elif time.monotonic() - worker.since > (seconds_per_case if worker.ready else _STARTING):
                    yield _given_up(worker, busy, waiting, "hung")
    finally:
        for worker in busy:
            worker.stop()


def _receive(worker: _Worker, busy: list[_Worker], waiting: list[range]) -> Iterator[Result]:
    try:
        answer = worker.channel.recv()
    except EOFError:
        if worker.next < worker.cases.stop:
            yield _given_up(worker, busy, waiting, "died")
        else:
            busy.remove(worker)
            worker.stop()
        return
    worker.since = time.monotonic()
    if answer is None:
        worker.ready = True
        return
    worker.next = answer.case + 1
    yield answer


def _given_up(worker: _Worker, busy: list[_Worker], waiting: list[range], outcome: str) -> Result:
    """The case at which a worker hung or died; another worker goes on behind it."""
    busy.remove(worker)
    seconds = time.monotonic() - worker.since
    code = worker.stop()
    if not worker.ready:
        raise RuntimeError(f"a worker did not get ready (exit code {code}); run one case in this process to see why")
    if worker.next + 1 < worker.cases.stop:
        waiting.append(range(worker.next + 1, worker.cases.stop))
    return Result(worker.next, "unknown", outcome, f"exit code {code} after {seconds:.1f} s", seconds, 0)
