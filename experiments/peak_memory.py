"""Peak memory and time of a command, above those of an empty process: `python -m experiments.peak_memory jaxspec pack ...`.

Memory is the largest resident set, in which pages of mapped files count; an empty process has imported JAX and made an array.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

__all__ = ["Peak", "peak_of"]

_EMPTY = [sys.executable, "-c", "import jax; jax.numpy.zeros(1).block_until_ready()"]


class Peak(NamedTuple):
    """Of a process: largest resident set, seconds on the clock and on processors, exit status."""

    peak_bytes: int
    seconds: float
    processor_s: float
    status: int


def peak_of(command: list[str]) -> Peak:
    """Run a command and wait for it."""
    started = time.monotonic()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    # Linux counts in kibibytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    clock, busy = time.monotonic() - started, usage.ru_utime + usage.ru_stime
    return Peak(unit * usage.ru_maxrss, clock, busy, os.waitstatus_to_exitcode(status))


def main() -> int:
    """Run the command of the arguments; print JSON."""
    parser = argparse.ArgumentParser(prog="python -m experiments.peak_memory", description=__doc__)
    parser.add_argument("command", help="program, or jaxspec")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of it")
    given = parser.parse_args()
    command = [given.command, *given.arguments]
    if given.command == "jaxspec":
        command = [sys.executable, "-m", *command]
    empty, found = peak_of(_EMPTY), peak_of(command)
    numbers = found._asdict() | {
        "empty_bytes": empty.peak_bytes,
        "above_empty_bytes": found.peak_bytes - empty.peak_bytes,
    }
    print(json.dumps(numbers, indent=2))
    return found.status


if __name__ == "__main__":
    sys.exit(main())
