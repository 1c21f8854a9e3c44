"""Generated text, looked at and run: it is hostile input.

A process with limits parses a text and takes its doctests out of it, and runs nothing. Code runs in one that a tool of the
system isolates: bubblewrap, else `unshare` of util-linux. It sees a read-only tree of libraries and the interpreter, no other
process, no network and no environment variable; it may start no process, and is dead when a call returns. It gets sources and
returns their output, within a limit of bytes; expected output stays in this process, which compares. Where neither tool works,
code is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import doctest
import functools
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError

__all__ = ["DEFAULT_LIMITS", "UNSAFE", "Limits", "Verdict", "isolation", "run_sandboxed"]

_CHILD = Path(__file__).with_name("sandboxed.py")

#: Seconds that starting an interpreter may take beside the limit, and bytes of an answer.
_START_S, _MOST_BYTES = 10.0, 4 << 20

#: What `isolation` answers where code runs without any, since a user insists.
UNSAFE = "nothing"

#: User without rights, as whom code runs that root starts: limits of processes do not bind root.
_NOBODY = "65534"

#: Where the tree is made: a directory that each Linux has and that holds no file of Python. No other process sees it.
_TREE = "/sys"

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


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
        seconds: of the clock for one text.
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


class _Ended(Exception):  # noqa: N818 - an outcome, no error
    """A process ended without an answer."""

    def __init__(self, verdict: Verdict, *, started: bool = True):
        super().__init__(verdict)
        self.verdict, self.started = verdict, started


def isolation(*, unsafe: bool = False) -> str:
    """The tool that isolates generated code: "bubblewrap", "unshare", or `UNSAFE`.

    Args:
        unsafe: run code also where nothing isolates it.
    Raises:
        InputError: nothing does.
    """
    return _isolation(unsafe)[0]


def run_sandboxed(check: str, text: str, limits: Limits = DEFAULT_LIMITS, *, unsafe: bool = False) -> Verdict:
    """Look at one text in a process of its own; for "doctests", run it isolated if it has any.

    Args:
        check: "parses", "compiles" or "doctests".
        unsafe: run code also where nothing isolates it.
    Raises:
        ValueError: another check.
        InputError: code would run, and nothing isolates it.
    """
    if check not in ("parses", "compiles", "doctests"):
        raise ValueError(f"check is {check!r}; allowed are 'parses', 'compiles' and 'doctests'")
    start = _isolation(unsafe)[1] if check == "doctests" else ()
    try:
        seen = _answer((), {"check": check, "text": text}, limits)
        if not isinstance(seen, dict):
            return Verdict.HOLDS if seen is True else Verdict.FAILS
        tests = seen["tests"]
        sources = [[source for source, *_ in examples] for examples in tests]
        return _compared(tests, _answer(start, {"code": seen["code"], "tests": sources}, limits))
    except _Ended as ended:
        if not ended.started:
            raise InputError(f"a process to check text did not start ({shlex.join(start[:1]) or 'Python'})") from ended
        return ended.verdict


def _compared(tests: list, outputs: Any) -> Verdict:
    """Whether outputs are as expected; they come from hostile code and may be anything."""
    if outputs is None:
        return Verdict.FAILS
    try:
        rows = [zip(*pair, strict=True) for pair in zip(tests, outputs, strict=True)]
        return Verdict.HOLDS if all(_as_expected(*pair) for row in rows for pair in row) else Verdict.FAILS
    except (TypeError, ValueError, AttributeError):
        return Verdict.CRASHED


def _as_expected(example: list, output: list) -> bool:
    """As `doctest.DocTestRunner` decides."""
    (_, want, message, flags), (raised, got) = example, output
    check = doctest.OutputChecker().check_output
    if not raised:
        return check(want, got, flags)
    if message is None:
        return False
    kind = lambda text: text.split("\n")[0].split(":")[0].rpartition(".")[2] + "\n"
    alike = flags & doctest.IGNORE_EXCEPTION_DETAIL and check(kind(message), kind(got), flags)
    return bool(check(message, got, flags) or alike)


def _answer(start: Sequence[str], asked: dict[str, Any], limits: Limits) -> Any:
    """What a process answers; it and all that it started are dead then.

    Args:
        start: command that isolates it; empty: it has limits alone.
    Raises:
        _Ended: it gives none.
    """
    request = {"asked": asked, "seconds": limits.seconds, "memory_bytes": limits.memory_bytes}
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps(request).encode("ascii"))  # lone surrogates pass as JSON escapes
        given.seek(0)
        process = subprocess.Popen(
            [*start, _python(), "-I", "-S", "-B", "-X", "utf8", "-c", _CHILD.read_text(encoding="utf-8")],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PATH": _PATH} if start else {},
            start_new_session=True,
        )
        try:
            return json.loads(_read(process, limits.seconds))
        except (ValueError, RecursionError) as error:
            raise _Ended(Verdict.CRASHED) from error
        finally:
            _end(process, isolated=bool(start))


def _read(process: subprocess.Popen, seconds: float) -> bytearray:
    """All that a process writes, the first byte when it starts, within a number of seconds from then on."""
    assert process.stdout is not None
    data, until = bytearray(), time.monotonic() + _START_S
    ready = select.poll()
    ready.register(process.stdout, select.POLLIN)
    while len(data) <= _MOST_BYTES:
        left = until - time.monotonic()
        if left <= 0 or not ready.poll(1000 * left):
            raise _Ended(Verdict.TIMED_OUT, started=bool(data))
        part = os.read(process.stdout.fileno(), 1 << 16)
        if not part and not data:
            raise _Ended(Verdict.CRASHED, started=False)
        if not part:
            return data
        if not data:
            until = time.monotonic() + seconds
        data += part
    raise _Ended(Verdict.CRASHED)


def _end(process: subprocess.Popen, *, isolated: bool) -> None:
    """End a process and all that it started."""
    # The child is the first process of a PID namespace: it ends after all others of it, and the process ends after the child.
    if isolated:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            process.wait(timeout=_START_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _isolation(unsafe: bool) -> tuple[str, tuple[str, ...]]:
    isolation = _working(os.environ.get("PATH", ""), os.geteuid())
    if isolation is None and not unsafe:
        raise InputError(
            "generated code runs only where it is isolated, and here neither bubblewrap nor unshare can make namespaces; "
            "install both (apt-get install bubblewrap util-linux) and allow user namespaces, or give --unsafe-run-code "
            "(unsafe=True)"
        )
    return isolation or (UNSAFE, ())


@functools.lru_cache
def _working(path: str, user: int) -> tuple[str, tuple[str, ...]] | None:
    """The first way that works of those that a PATH and a user have."""
    for name, start in _ways(user == 0):
        with contextlib.suppress(_Ended, OSError):
            seen = _answer((), {"check": "doctests", "text": "'''\n>>> 1 + 1\n2\n'''"}, DEFAULT_LIMITS)
            if _answer(start, {"code": seen["code"], "tests": [["1 + 1"]]}, DEFAULT_LIMITS) == [[[False, "2\n"]]]:
                return name, start
    return None


def _ways(root: bool) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Ways to isolate a command that is appended, by name of the tool."""
    bwrap, unshare, setpriv, sh = map(shutil.which, ("bwrap", "unshare", "setpriv", "sh"))
    if unshare is None or setpriv is None or sh is None:
        return
    first = (unshare, "--mount", "--ipc", *(() if root else ("--user", "--map-root-user")), sh, "-c")
    become = ("--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups") if root else ()
    become = (setpriv, *become, "--pdeathsig", "KILL")
    if bwrap is not None:
        spaces = (f"--unshare-{space}" for space in ("user", "pid", "net", "uts", "cgroup-try"))
        user = ("--uid", _NOBODY, "--gid", _NOBODY, "--disable-userns")
        inner = (
            *become,
            bwrap,
            *spaces,
            *user,
            "--new-session",
            "--die-with-parent",
            "--clearenv",
            "--ro-bind",
            _TREE,
            "/",
        )
        yield "bubblewrap", (*first, _in_tree((), inner), "sh")
    # No root of its own to pivot to: leaving a root directory takes a capability, and all are dropped for good.
    drop = "setpriv --no-new-privs --inh-caps=-all --bounding-set=-all --"
    leave = f'echo 0 > /proc/sys/user/max_user_namespaces && exec chroot {_TREE} env -i {drop} "$@"'
    spaces = (f"--{space}" for space in ("user", "map-root-user", "mount", "pid", "net", "uts", "cgroup"))
    inner = (*become, unshare, *spaces, "--fork", "--kill-child", sh, "-c", leave, "sh")
    tools = [tool for tool in (shutil.which(name, path=_PATH) for name in ("env", "setpriv")) if tool]
    yield "unshare", (*first, _in_tree(tools, inner), "sh")


def _in_tree(tools: Sequence[str], then: Sequence[str]) -> str:
    """A script that makes a read-only tree at `_TREE` for Python and tools, and goes on with a command and its arguments.

    Memory that System V keeps without a process is refused, where the kernel has that setting for a namespace.
    """
    lines = [f"mount -t tmpfs -o size=1m,mode=755 none {_TREE}"]
    for path in (*_needed(), *tools):
        place = shlex.quote(_TREE + path)
        lines.append(f"mkdir -p {shlex.quote(_TREE + os.path.dirname(path))}")
        if os.path.islink(path):
            lines.append(f"ln -s {shlex.quote(os.readlink(path))} {place}")
            continue
        lines.append(f"mkdir {place}" if os.path.isdir(path) else f": > {place}")
        lines.append(f"mount --bind -o ro {shlex.quote(path)} {place}")
    lines += [f"(echo 0 > /proc/sys/kernel/{kind}) 2> /dev/null || :" for kind in ("shmall", "shmmni", "msgmni")]
    return "\n".join(["set -e", *lines, f"mount -o remount,bind,ro {_TREE}", f'exec {shlex.join(then)} "$@"'])


def _python() -> str:
    """The interpreter itself, outside of a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _needed() -> list[str]:
    """Files and directories that the interpreter needs; symbolic links are made anew."""
    python = _python()
    own = [os.path.join(os.path.dirname(os.path.dirname(python)), name) for name in ("lib", "lib64")]
    own.append(os.path.realpath(os.path.dirname(os.__file__)))
    system = [f"{place}/lib{bits}" for place in ("", "/usr", "/usr/local") for bits in ("", "32", "64")]
    places = sorted({*own, *system, "/nix/store", "/etc/ld.so.cache", python})
    within = lambda path: any(path.startswith(other + "/") for other in places if not os.path.islink(other))
    return [path for path in places if os.path.exists(path) and not within(path)]
