"""Hostile samples: none gets a verdict that it does not earn, reaches anything outside, or outlives a call.

The table runs in processes of their own (`python test_sandbox.py`), as root and as another user, with each tool alone on the PATH.
"""

import concurrent.futures
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jaxspec.errors import InputError
from jaxspec.scaling.verifiers import Limits, Verdict, isolation, run_sandboxed

LIMITS = Limits(seconds=1.0, memory_bytes=256 << 20)
NOBODY = 65534

#: A text whose doctest does not hold, behind which attacks on the verdict stand.
WRONG = 'def f():\n    """\n    >>> f()\n    1\n    """\n    return 2\n'

VERDICTS = [
    'import os\nos.write(1, b"holds")\nos._exit(0)',
    'import os\nos.write(1, b"true")\nos._exit(0)',
    "import os\nfor fd in range(32):\n    try: os.write(fd, b'true')\n    except OSError: pass\nos._exit(0)",
    "import os\nfor fd in range(32):\n    try: os.write(fd, b'[' * 10 ** 6)\n    except OSError: pass\nos._exit(0)",
    "import os\nfor fd in range(32):\n    try: os.write(fd, b'[[]]')\n    except OSError: pass\nos._exit(0)",
    "import os\nfor fd in range(32):\n    try: os.write(fd, b'[]')\n    except OSError: pass\nos._exit(0)",
    "import os\nfor fd in range(32):\n    try: os.write(fd, b'[[[false, 1]]]')\n    except OSError: pass\nos._exit(0)",
    "import os\nfor fd in range(32):\n    try: os.write(fd, b'x' * 10 ** 8)\n    except OSError: pass",
    "import doctest\ndoctest.OutputChecker.check_output = lambda *a: True",
    "import doctest\ndoctest.DocTestRunner.run = lambda *a, **k: None",
    "import __main__\n__main__._Recorder.check_output = lambda *a: True",
    "import __main__\n__main__._outputs = lambda *a: True\nimport json\njson.dumps = lambda *a: 'true'",
    "import sys, gc\nfor o in gc.get_objects():\n    if type(o).__name__ == '_Recorder': o.check_output = lambda *a: True",
    "import sys\nfor b in list(sys.modules): sys.modules.pop(b)",
    "import sys\nsys.exit(0)",
    "import builtins\nbuiltins.all = builtins.any = lambda *a: True",
    # What is expected is not there to be read.
    "import sys\nf = lambda: None\nframe = sys._getframe()\nwhile frame:\n    if 'want' in frame.f_locals: f = lambda: int(frame.f_locals['want'])\n    frame = frame.f_back",
    "def f():\n    return int(__import__('re').search('f\\\\(\\\\)\\\\s+(\\\\d)', DOC).group(1))",
    # An object that is equal to everything, and one whose text never ends.
    "class E:\n    __eq__ = lambda *a: True\n    __repr__ = lambda s: 'E'\nf = E",
    "class E:\n    __repr__ = lambda s: '1' * 10 ** 7\nf = E",
    "def f(): raise ValueError('1' * 10 ** 7)",
    "class S(str):\n    __eq__ = lambda *a: True\n    __hash__ = str.__hash__\nf = lambda: S('2')",
]

#: Bodies that get to their end where they reach what they may not; `{place}`, `{pid}` and the like are given by the test.
ATTACKS = {
    "files": [
        "assert open('{place}/secret').read()",
        "assert open('/etc/passwd').read()",
        "assert open('/etc/shadow').read()",
        "import os; assert os.listdir('{home}')",
        "import os; assert os.listdir('{repository}')",
        "import os; os.remove('{place}/secret')",
        "open('{place}/written', 'w')",
        "open('written', 'w')",
        "open('/tmp/written', 'w')",
        "open('/dev/shm/written', 'w')",
        "import os; os.mkdir('{library}/made')",
        "import os; os.rename('{library}/ast.py', '{library}/asb.py')",
        "import os; os.chmod('{library}/ast.py', 0o777)",
        "import os; os.truncate('{library}/ast.py', 0)",
        "import os; os.symlink('{place}', '/link')",
        "import os; os.chroot('/usr'); os.chroot('..')",
        "import os; assert os.readlink('/proc/self/fd/0')",
        "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/usr', b'tmpfs', 0, None) == 0",
        "import ctypes; assert ctypes.CDLL(None).umount2(b'/usr/lib', 2) == 0",
        "import os\n    for fd in range(3, 32):\n        try: os.listdir(fd); break\n        except OSError: pass\n    else: 1 / 0",
        "import os\n    for fd in range(32):\n        try: os.ftruncate(fd, 1 << 30); break\n        except OSError: pass\n    else: 1 / 0",
    ],
    "processes": [
        "import os; os.fork() or os._exit(0)",
        "import os\n    if not os.fork():\n        os.setsid()\n        if not os.fork():\n            import time; time.sleep(60)\n        os._exit(0)",
        "import subprocess; subprocess.run(['/bin/sh', '-c', 'true'])",
        "import os; assert os.system('true') == 0",
        "import os; os.posix_spawn('{python}', ['python', '-c', '1'], {{}})",
        "import multiprocessing; multiprocessing.Process(target=print).start()",
        "import os\n    for _ in range(10 ** 4):\n        os.fork()",
        "import os; os.execv('/bin/sh', ['sh', '-c', 'sleep 60'])",
        "import os; os.execv('{python}', ['python', '-c', 'import time; time.sleep(60)'])",
        "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0",
        "import threading\n    for _ in range(4): threading.Thread(target=print).start()",
        "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (99, 99))",
        "import os; os.setuid(0); os.setuid(1)",
        "import ctypes; assert ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == 0",
    ],
    "signals": [
        "import os; os.kill({pid}, 0)",
        "import os; os.kill({parent}, 15)",
        "import os; os.kill(os.getppid(), 9); assert os.getppid()",
        "import os; os.kill(-1, 9); os.kill({pid}, 0)",
        "import os; os.killpg(os.getpgid({pid}), 9)",
        "import os, signal; os.pidfd_open({pid})",
        "import os, fcntl; fcntl.ioctl(0, 0x5412, b'x')",
    ],
    "network": [
        "import socket; socket.create_connection(('127.0.0.1', {port}), 0.5)",
        "import socket; socket.create_connection(('1.1.1.1', 53), 0.5)",
        "import socket; socket.socket(socket.AF_UNIX).connect('\\0{abstract}')",
        "import socket; assert len(socket.if_nameindex()) > 1",
        "import socket; socket.getaddrinfo('example.org', 80)",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    ],
    "environment": [
        "import os; assert os.environ['SECRET_OF_TEST']",
        "import os; assert set(os.environ) - {{'PWD', 'LC_CTYPE'}}",
        "assert b'SECRET_OF_TEST' in open('/proc/{parent}/environ', 'rb').read()",
        "assert b'SECRET_OF_TEST' in open('/proc/self/environ', 'rb').read()",
        "import os; assert b'SECRET' in open(f'/proc/{{os.getppid()}}/environ', 'rb').read()",
        "import sys; assert any('jaxspec' in path for path in sys.path)",
        "import socket; assert socket.gethostname() == '{host}' and socket.sethostname('x') is None",
    ],
    "memory": [
        "assert bytearray(1 << 30)",
        "grown = []\n    while len(grown) < 1 << 10: grown.append(bytearray(1 << 20))",
        "import mmap; assert mmap.mmap(-1, 1 << 30)",
        "import os; os.ftruncate(os.memfd_create('x'), 1 << 30)",
        "import os; os.write(os.memfd_create('x'), b'x')",
        "from multiprocessing import shared_memory; shared_memory.SharedMemory(create=True, size=1 << 20)",
        "import ctypes; assert ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600) >= 0",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "assert len('x' * (1 << 30))",
        "assert 9 ** 9 ** 9",
    ],
    "time": [
        "while True: pass",
        "import time; time.sleep(60)",
        "import signal, time\n    for s in range(1, 65):\n        try: signal.signal(s, signal.SIG_IGN)\n        except (OSError, ValueError): pass\n    time.sleep(60)",
        "import signal, os, time; os.close(1)\n    for fd in range(3, 32):\n        try: os.close(fd)\n        except OSError: pass\n    time.sleep(60)",
        "while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
        "input(); sum(range(10 ** 12))",
    ],
}

HONEST = {
    "a function": 'def f(x):\n    """\n    >>> f(1)\n    2\n    """\n    return x + 1\n',
    "a class": 'class A:\n    """\n    >>> A().x\n    3\n    """\n    x = 3\n',
    "a method": 'class A:\n    def f(self):\n        """\n        >>> A().f()\n        3\n        """\n        return 3\n',
    "a property with a setter": 'class A:\n    @property\n    def p(self):\n        """\n        >>> A().p\n        1\n        """\n'
    "        return 1\n    @p.setter\n    def p(self, value):\n        self.q = value\n",
    "a class within a class": 'class A:\n    class B:\n        """\n        >>> A.B().x\n        1\n        """\n        x = 1\n',
    "a module": '"""\n>>> x\n1\n"""\nx = 1\n',
    "__test__": '__test__ = {"one": ">>> x\\n1\\n"}\nx = 1\n',
    "an exception": 'def f():\n    """\n    >>> f()\n    Traceback (most recent call last):\n        ...\n    ValueError: no\n'
    '    """\n    raise ValueError("no")\n',
    "an exception without details": 'import json\ndef f():\n    """\n    >>> f()  # doctest: +IGNORE_EXCEPTION_DETAIL\n    Traceback (most recent call last):\n'
    '    JSONDecodeError: any\n    """\n    json.loads("{")\n',
    "ellipsis": 'def f():\n    """\n    >>> f()  # doctest: +ELLIPSIS\n    [0, ..., 9]\n    """\n    return list(range(10))\n',
    "spaces": 'def f():\n    """\n    >>> f()  # doctest: +NORMALIZE_WHITESPACE\n    [0,\n     1]\n    """\n    return [0, 1]\n',
    "a blank line": 'def f():\n    """\n    >>> f()\n    a\n    <BLANKLINE>\n    b\n    """\n    print("a\\n\\nb")\n',
    "skipped": 'def f():\n    """\n    >>> f()  # doctest: +SKIP\n    2\n    """\n',
    "names of examples": 'def f(x):\n    """\n    >>> a = f(2)\n    >>> for i in range(2):\n    ...     print(a + i)\n    2\n    3\n    """\n    return x\n',
    "under if and try": 'try:\n    if True:\n        def f():\n            """\n            >>> f()\n            1\n            """\n            return 1\nfinally: pass\n',
    "a decorator": 'import functools\n@functools.lru_cache\ndef f():\n    """\n    >>> f()\n    1\n    """\n    return 1\n',
    "the last of one name": 'def f():\n    """\n    >>> f()\n    1\n    """\ndef f():\n    """\n    >>> f()\n    2\n    """\n    return 2\n',
    "imports": 'import collections, itertools, math, re, json, dataclasses\ndef f():\n    """\n    >>> f()\n    3\n    """\n    return math.comb(3, 1)\n',
    "a future": 'from __future__ import annotations\ndef f():\n    """\n    >>> def g(x: y): pass\n    >>> f()\n    1\n    """\n    return 1\n',
    "an async function": 'import asyncio\nasync def f():\n    """\n    >>> f.__name__\n    \'f\'\n    """\n',
    "a true value": 'def f():\n    """\n    >>> f()\n    1\n    """\n    return True\n',
    "text of all kinds": 'def f():\n    """\n    >>> print(f())\n    \u00e4\u6f22\U0001f600\n    """\n    return "\u00e4\u6f22\U0001f600"\n',
    "a write to the true output": 'import os\ndef f():\n    """\n    >>> f()\n    1\n    """\n    os.write(1, b"x")\n    return 1\n',
}


def attack(body):
    """A text whose doctest holds if a body gets to its end."""
    return f'def f():\n    """\n    >>> f()\n    True\n    """\n    {body}\n    return True\n'


def table(**values):
    """All attacks: kind -> texts."""
    return {"verdict": [WRONG + "DOC = f.__doc__\n" + text for text in VERDICTS]} | {
        kind: [attack(body.format(**values)) for body in bodies] for kind, bodies in ATTACKS.items()
    }


def remaining():
    """Processes of samples that run: their command has the child's text."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command, state = (place / "cmdline").read_bytes(), (place / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if b"Examples of each docstring" in command and state != "Z":
            found.append(int(place.name))
    return found


def worker():
    """Run texts of the standard input one by one; print [verdict, seconds, remaining processes] of each."""
    texts = json.load(sys.stdin)
    try:
        name = isolation()
    except InputError as error:
        print(json.dumps({"refused": str(error)}))
        return
    rows = []
    for text in texts:
        began = time.monotonic()
        verdict = run_sandboxed("doctests", text, LIMITS)
        rows.append([verdict.value, time.monotonic() - began, remaining()])
    print(json.dumps({"by": name, "rows": rows}))


if __name__ == "__main__":
    worker()
