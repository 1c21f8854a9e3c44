"""Text from a network, looked at in a process of its own: generated code is hostile input.

The process gets an empty environment, an empty working directory that is removed, limits of processor time, memory, open files,
file size and processes from the operating system, where it allows a network namespace without a network, and an audit hook that
refuses sockets, further processes, writing, loading of libraries and everything else that a check does not need. It is killed,
with its group, when its time is over. These are several fences, each of which may have a hole; for code that is worth more
effort to break out, run the whole command in a container or a virtual machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from enum import Enum
from pathlib import Path

__all__ = ["DEFAULT_LIMITS", "Limits", "Verdict", "run_sandboxed"]

_CHILD = Path(__file__).with_name("sandboxed.py")

#: Seconds that starting an interpreter may take beside the limit.
_START_S = 10.0


class Verdict(Enum):
    """What became of a check."""

    HOLDS = "holds"
    FAILS = "fails"
    TIMED_OUT = "timed out"
    CRASHED = "crashed"  # killed by a limit or a signal, or without an answer


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one process.

    Attributes:
        seconds: of processor time, and of the clock for one text.
        memory_bytes: of its address space.
    Raises:
        ValueError: a limit that no interpreter starts under.
    """

    seconds: float = 2.0
    memory_bytes: int = 512 << 20

    def __post_init__(self) -> None:
        if not self.seconds > 0 or self.memory_bytes < 64 << 20:
            raise ValueError(
                f"limits of {self.seconds} s and {self.memory_bytes} bytes came; give more than 0 s and 64 MiB or more"
            )


#: Of checks that are given none.
DEFAULT_LIMITS = Limits()


def run_sandboxed(check: str, text: str, limits: Limits = DEFAULT_LIMITS) -> Verdict:
    """Look at one text in a process of its own.

    Args:
        check: "parses", "compiles" or "doctests".
    Raises:
        ValueError: another check.
    """
    if check not in ("parses", "compiles", "doctests"):
        raise ValueError(f"check is {check!r}; allowed are 'parses', 'compiles' and 'doctests'")
    request = {
        "check": check,
        "text": text,
        "seconds": limits.seconds,
        "memory_bytes": limits.memory_bytes,
    }
    with tempfile.TemporaryDirectory(prefix="jaxspec-check-") as place:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=place,
            env={},
            start_new_session=True,
        )
        try:
            # Lone surrogates pass as JSON escapes.
            answer, _ = process.communicate(json.dumps(request).encode("ascii"), timeout=limits.seconds + _START_S)
        except subprocess.TimeoutExpired:
            return Verdict.TIMED_OUT
        finally:
            _kill_group(process)
    if process.returncode in (-signal.SIGXCPU, -signal.SIGALRM):
        return Verdict.TIMED_OUT
    words = {b"holds": Verdict.HOLDS, b"fails": Verdict.FAILS}
    return words.get(answer, Verdict.CRASHED) if process.returncode == 0 else Verdict.CRASHED


def _kill_group(process: subprocess.Popen) -> None:
    """End a process and all that it may have started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
