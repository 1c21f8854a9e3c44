"""The command line as a process: signals end it at once, with a true message; standard streams are there or it says so.

Python runs its own signal handlers between two of its instructions, so not while XLA compiles; and an interpreter that ends
while compiler threads still work crashes in them. So a thread waits for signals, takes unfinished files back, and ends the
process without that of the interpreter. What comes before, such as a signal during the imports of this module, is Python's
own traceback: so nothing here, nor in the package around it, imports more than the standard library before signals are watched.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import time
from typing import TextIO

from jaxspec.cleanup import PENDING
from jaxspec.errors import printable

__all__ = ["INTERRUPTED", "discard_output", "main"]

#: Exit code of an interrupted command, whichever signal it was.
INTERRUPTED = 130

#: A signal that comes this many seconds after the first ends the process even where files cannot be removed.
_INSISTING_S = 1.0

#: What it says then.
_INSISTED = (
    b"jaxspec: interrupted twice, before unfinished files were removed; the same command removes them when run again\n"
)

#: Set from when a signal is followed.
_LEAVING = threading.Event()

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit.

    Args:
        arguments: None for those of the process, whose signals are then taken care of; a caller in Python gets
            KeyboardInterrupt as ever.
    """
    watched: set[signal.Signals] = set()
    if arguments is None:
        _open_standard_streams()
        watched = _watch_signals()
    from jaxspec.cli.app import main as command_line

    try:
        command_line(arguments)
    finally:
        while _LEAVING.is_set():  # this thread may have failed in what was taken back: the other one ends the process
            time.sleep(_INSISTING_S)
        # All is done and printed; the interpreter, which would reset them to kill it, ends in a moment.
        for number in watched:
            signal.signal(number, signal.SIG_IGN)


def _open_standard_streams() -> None:
    """Give closed standard descriptors a place, so that no file that is written gets their numbers; print in any encoding."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    # What the locale's encoding lacks, as lines of tables in Latin-1, is a question mark and not the end of the command.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")


def _watch_signals() -> set[signal.Signals]:
    """From now on, a signal to stop ends the process within a moment, whatever native code runs; the signals taken."""
    if threading.current_thread() is not threading.main_thread():
        return set()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    said = os.dup(2)  # where the last words go
    came: list[float] = []

    def handle(number: int, frame: object) -> None:
        came.append(time.monotonic())
        if came[-1] - came[0] > _INSISTING_S:
            os.write(said, _INSISTED)
            os._exit(INTERRUPTED)
        with contextlib.suppress(OSError):  # where some library took the wake-up descriptor
            os.write(write_end, bytes([number]))

    def wait() -> None:
        while True:
            number = os.read(read_end, 1)[0]
            if number in taken:
                _leave(said)

    # What the shell told to ignore, as of `nohup` or a script's background jobs, stays ignored.
    taken = {number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}
    threading.Thread(target=wait, name="signals", daemon=True).start()
    # Written from within the signal itself, without the interpreter.
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in taken:
        signal.signal(number, handle)
    return taken


def _leave(said: int) -> None:
    """End the process now.

    Args:
        said: descriptor of standard error; other threads, whose files are taken back, print nothing there from now on.
    """
    _LEAVING.set()
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        message = f"jaxspec: {printable(PENDING.abandon())}\n"
        if os.isatty(said):
            message = f"\x1b[?25h\n{message}"  # progress bars hide the cursor
        os.write(said, message.encode())  # not sys.stderr, which the main thread may hold
        _end_children()
    finally:
        os._exit(INTERRUPTED)


def _end_children() -> None:
    """End the processes that this one started, where the system lists them."""
    for thread in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ():
        with contextlib.suppress(OSError, ValueError), open(f"/proc/self/task/{thread}/children") as file:
            for child in file.read().split():
                os.kill(int(child), signal.SIGTERM)


def discard_output(*streams: TextIO | None) -> None:
    """Send what streams still hold nowhere, so that the end of the interpreter does not fail on it again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(nowhere, stream.fileno())  # pyright: ignore[reportOptionalMemberAccess] - suppressed
