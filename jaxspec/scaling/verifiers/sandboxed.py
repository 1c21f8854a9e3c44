"""Runs alone in the sandbox (see `sandbox`): reads one request, fences itself in, looks at the text, answers one word.

It imports nothing but the standard library, and all that it needs before the fences are up.
"""

import ast
import contextlib
import ctypes
import doctest
import io
import json
import os
import resource
import signal
import sys
import types

#: Kinds of event that nothing needs which is checked here; a name stands for all events below it.
_REFUSED = (
    "socket",
    "subprocess",
    "os",
    "shutil",
    "ctypes",
    "pty",
    "fcntl",
    "ftplib",
    "http",
    "imaplib",
    "poplib",
    "smtplib",
    "telnetlib",
    "urllib",
    "webbrowser",
    "winreg",
    "syslog",
    "tempfile",
    "sqlite3",
    "marshal",
    "pickle",
    "mmap",
    "signal",
    "resource",
    "_thread",
    "gc",
    "sys.addaudithook",
    "sys._getframe",
    "cpython",
    "code.__new__",
    "function.__new__",
)

#: Of these, what importing and doctest itself use.
_ALLOWED = ("os.listdir", "os.scandir", "sys._getframe", "os.fwalk")

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


def _without_network() -> None:
    """A network namespace of its own, where the system grants one; the audit hook stands in any case."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def _limit(seconds: float, memory_bytes: int) -> None:
    whole = max(1, int(-(-seconds // 1)))
    limits = {
        resource.RLIMIT_CPU: (whole, whole + 1),  # a signal that tells at the first, the end at the second
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 32,
        resource.RLIMIT_NPROC: 0,
    }
    for kind, most in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, most if isinstance(most, tuple) else (most, most))
    # The clock too: code may sleep. The default action of the signal ends the process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _refuse(event: str, arguments: tuple) -> None:
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        if writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            raise PermissionError("writing is not allowed here")
        return
    if event in _ALLOWED:
        return
    if any(event == name or event.startswith(name + ".") for name in _REFUSED):
        raise PermissionError(f"{event} is not allowed here")


def _holds(check: str, text: str) -> bool:
    try:
        tree = ast.parse(text)
        if check == "parses":
            return True
        code = compile(tree, "<sample>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError, UnicodeError):
        return False
    if check == "compiles":
        return True
    module = sys.modules["sample"] = types.ModuleType("sample")
    sink = io.StringIO()
    real, sys.stdout, sys.stderr = sys.stdout, sink, sink
    try:
        exec(code, module.__dict__)
        found = doctest.DocTestFinder(exclude_empty=True).find(module, "sample", module=module, globs=module.__dict__)
        tests = [test for test in found if test.examples]
        runner = doctest.DocTestRunner(verbose=False)
        for test in tests:
            runner.run(test, out=sink.write)
        return bool(tests) and runner.failures == 0
    except BaseException:  # SystemExit and KeyboardInterrupt of the text are failures like any other
        return False
    finally:
        sys.stdout = real


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.read())
    answers = os.dup(1)
    _without_network()
    _limit(request["seconds"], request["memory_bytes"])
    sys.setrecursionlimit(2000)
    write, leave = os.write, os._exit
    sys.addaudithook(_refuse)
    word = b"holds" if _holds(request["check"], request["text"]) else b"fails"
    write(answers, word)
    leave(0)


if __name__ == "__main__":
    main()
