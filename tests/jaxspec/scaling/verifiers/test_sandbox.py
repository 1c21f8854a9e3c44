# ruff: noqa: E501 - one sample a line
"""Hostile samples: none gets a verdict that it does not earn, reaches anything outside, or outlives a call.

The table runs in processes of their own (`python test_sandbox.py`), as root and as another user, with each tool alone on the PATH.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest

from jaxspec.errors import InputError
from jaxspec.scaling.verifiers import Limits, doctests_hold, isolation, parses, run_sandboxed, sandbox

REPOSITORY = Path(__file__).parents[4]
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
    "import sys\nframe = sys._getframe()\nwhile frame:\n    if 'want' in frame.f_locals: NUMBER = int(frame.f_locals['want'])\n"
    "    frame = frame.f_back\nf.__code__ = (lambda: NUMBER).__code__",
    "import gc\nFOUND = [x for x in gc.get_objects() if type(x).__name__ == 'Example']\nf.__code__ = (lambda: int(FOUND[0].want)).__code__",
    "import re\nf.__code__ = (lambda: int(re.search(r'f\\(\\)\\s+(\\d)', f.__doc__).group(1))).__code__",
    "f.__code__ = (lambda: int(open('/proc/self/cmdline').read()[-1])).__code__",
    # An object that is equal to everything, and one whose text never ends.
    "class E:\n    __eq__ = lambda *a: True\n    __repr__ = lambda s: 'E'\nf.__code__ = (lambda: E()).__code__",
    "class E:\n    __repr__ = lambda s: '1' * 10 ** 7\nf.__code__ = (lambda: E()).__code__",
    "def fail(): raise ValueError('1' * 10 ** 7)\nf.__code__ = (lambda: fail()).__code__",
    "class S(str):\n    __eq__ = lambda *a: True\n    __hash__ = str.__hash__\nf.__code__ = (lambda: S('2')).__code__",
    "del f",
    "f.__doc__ = None",
    "__test__ = {}\n__doc__ = ''",
]

#: Bodies that get to their end where they reach what they may not; `{place}`, `{pid}` and the like are given by the test.
ATTACKS = {
    "files": [
        "assert open('{place}/secret').read()",
        "assert open('/etc/passwd').read()",
        "assert open('/etc/shadow').read()",
        "import os; assert len(os.listdir('{home}')) > 1",
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
        "import os; os.kill(1, 9); os.kill({pid}, 9)",
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
    return {"verdict": [WRONG + text for text in VERDICTS]} | {
        kind: [attack(body.format(**values)) for body in bodies] for kind, bodies in ATTACKS.items()
    }


def remaining(tag):
    """Processes of samples that run, by the comment at the end of their command."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command, state = (
                (place / "cmdline").read_bytes(),
                (place / "stat").read_text().rpartition(")")[2].split()[0],
            )
        except OSError:
            continue
        if f"# {tag}".encode() in command and state != "Z":
            found.append(int(place.name))
    return found


def worker(tag, seconds):
    """Run texts of the standard input; print by what, and [verdict, processes that remain] of each."""
    with tempfile.TemporaryDirectory() as place:
        sandbox._CHILD = Path(place, "child.py")
        sandbox._CHILD.write_text(Path(sandbox.__file__).with_name("sandboxed.py").read_text() + f"# {tag}\n")
        limits = Limits(seconds=float(seconds), memory_bytes=256 << 20)
        run = lambda text: [run_sandboxed("doctests", text, limits).value, remaining(tag)]
        try:
            print(json.dumps({"by": isolation(), "rows": [run(text) for text in json.load(sys.stdin)]}))
        except InputError as error:
            print(json.dumps({"refused": str(error)}))


def someone(user):
    """Command that another one is appended to, as which user it runs: root, uid 65534, or the present one."""
    if user == "root":
        return () if os.geteuid() == 0 else pytest.skip("only root runs samples as root")
    if os.geteuid():
        return ()
    if not shutil.which("setpriv") or subprocess.run(["unshare", "--mount", "true"]).returncode:
        pytest.skip("another user is made with setpriv and mount namespaces, which do not work here")
    # What the other user needs may lie in a directory that it may not enter: it gets a namespace in which it may.
    needed = [sys.base_prefix, sys.prefix, str(REPOSITORY)]
    lines = ["set -e", "mount -t tmpfs -o mode=755 none /mnt"]
    lines += [f"mkdir /mnt/{i} && mount --rbind {path} /mnt/{i}" for i, path in enumerate(needed)]
    closed = {
        min((p for p in Path(path).parents if not p.stat().st_mode & 1), default=None, key=lambda p: len(p.parts))
        for path in needed
    }
    lines += [f"mount -t tmpfs -o mode=755 none {path}" for path in closed - {None}]
    lines += [
        f"mkdir -p {path} && mount --rbind /mnt/{i} {path}"
        for i, path in enumerate(needed)
        if not os.access(path, 0) or closed - {None}
    ]
    script = "\n".join([*lines, f'exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups "$@"'])
    return ("unshare", "--mount", "sh", "-c", script, "sh")


def command(user, tools, folder, *, before=(), seconds=1.0):
    """Command and PATH of a worker that has some tools alone; its tag."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
        (folder / tool).symlink_to(shutil.which(tool))
    tag = f"tag-{uuid.uuid4().hex}"
    return [*someone(user), *before, "env", f"PATH={folder}", sys.executable, __file__, tag, str(seconds)], tag


def outcome(start, texts):
    """What a worker prints."""
    environment = os.environ | {"SECRET_OF_TEST": "1", "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(start, input=json.dumps(texts), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def open_folder():
    """A directory that all users may read."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o777)
        yield Path(place)


def isolated(found):
    """Rows of a worker that ran; the test is skipped where nothing isolates."""
    if "refused" in found:
        pytest.skip(found["refused"])
    return found["rows"]


#: Ways to isolate: tools on the PATH.
WITH_UNSHARE = ("unshare", "setpriv", "sh")
WAYS = [
    ("root", ("bwrap", *WITH_UNSHARE)),
    ("root", WITH_UNSHARE),
    ("another user", ("bwrap", *WITH_UNSHARE)),
    ("another user", WITH_UNSHARE),
]


@pytest.mark.parametrize(
    ("user", "tools"), [pytest.param(*way, marks=[] if "bwrap" in way[1] else [pytest.mark.signals]) for way in WAYS]
)
def test_no_attack_succeeds_or_outlives_its_call(user, tools, open_folder):
    secret = open_folder / "secret"
    secret.write_text("secret")
    os.chmod(secret, 0o666)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
        subprocess.Popen(["sleep", "600"]) as victim,
        contextlib.ExitStack() as ended,
    ):
        ended.callback(victim.kill)
        local.bind(f"\0jaxspec-{os.getpid()}")
        local.listen()
        attacks = table(
            place=open_folder,
            home=Path.home(),
            repository=REPOSITORY,
            library=os.path.dirname(os.__file__),
            python=os.path.realpath(sys.executable),
            pid=victim.pid,
            parent=os.getpid(),
            port=server.getsockname()[1],
            abstract=f"jaxspec-{os.getpid()}",
            host=socket.gethostname(),
        )
        texts = [(kind, text) for kind, texts in attacks.items() for text in texts]
        start, tag = command(user, tools, open_folder / "tools")
        rows = isolated(outcome(start, [text for _, text in texts]))
        assert victim.poll() is None
    assert [text for text, (verdict, _) in zip(texts, rows, strict=True) if verdict == "holds"] == []
    assert [text for text, (_, remain) in zip(texts, rows, strict=True) if remain] == []
    assert remaining(tag) == []
    assert sorted(path.name for path in open_folder.iterdir()) == ["secret", "tools"]
    assert secret.read_text() == "secret"
    assert len(attacks) == 8
    assert len(texts) > 40


@pytest.mark.signals(2)
@pytest.mark.parametrize(("user", "tools"), WAYS)
def test_honest_samples_hold_where_code_is_isolated(user, tools, open_folder):
    start, _ = command(user, tools, open_folder / "tools", seconds=30)
    rows = isolated(outcome(start, list(HONEST.values())))
    assert [name for name, (verdict, _) in zip(HONEST, rows, strict=True) if verdict != "holds"] == []
    assert len(HONEST) >= 20


NO_NAMESPACES = {
    "root": (
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"',
        "sh",
    ),
    "another user": ("bwrap", "--dev-bind", "/", "/", "--unshare-user", "--uid", str(NOBODY), "--disable-userns"),
}


@pytest.mark.parametrize("before", NO_NAMESPACES.values(), ids=NO_NAMESPACES)
def test_without_user_namespaces_code_is_refused_or_isolated(before, open_folder):
    if shutil.which(before[0]) is None or subprocess.run([*before, "true"]).returncode:
        pytest.skip(f"{before[0]} makes no user namespace here")
    start, _ = command("another user", ("bwrap", *WITH_UNSHARE), open_folder / "tools", before=before)
    found = outcome(start, [attack(f"import os; os.kill({os.getpid()}, 0)"), WRONG + VERDICTS[0]])
    if "refused" in found:
        assert "apt-get install bubblewrap util-linux" in found["refused"]
    else:
        assert [verdict for verdict, _ in found["rows"]] == ["fails", "crashed"]


@pytest.mark.parametrize("tools", [("bwrap", *WITH_UNSHARE), WITH_UNSHARE])
def test_samples_end_when_the_program_that_runs_them_is_killed(tools, open_folder):
    start, tag = command("another user", tools, open_folder / "tools", seconds=60)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as running:
        running.stdin.write(json.dumps([attack("import time; time.sleep(60)")]))
        running.stdin.close()
        while len(remaining(tag)) == 0 and running.poll() is None:
            time.sleep(0.1)
        if running.poll() is not None:
            isolated(json.loads(running.stdout.read().splitlines()[-1]))
        time.sleep(1)
        running.kill()
    until = time.monotonic() + 10
    while remaining(tag) and time.monotonic() < until:
        time.sleep(0.1)
    assert remaining(tag) == []


def test_code_is_refused_without_isolation_unless_one_insists(monkeypatch):
    monkeypatch.setenv("PATH", "")
    text = HONEST["a function"]
    with pytest.raises(InputError, match=r"apt-get install bubblewrap util-linux.* --unsafe-run-code") as caught:
        run_sandboxed("doctests", text)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="runs only where it is isolated"):
        doctests_hold([text])
    assert isolation(unsafe=True) == "nothing"
    assert doctests_hold([text, WRONG], unsafe=True).tolist() == [1, 0]
    # Nothing of a text runs to parse it.
    assert parses([text]).tolist() == [1]


if __name__ == "__main__":
    worker(*sys.argv[1:])
