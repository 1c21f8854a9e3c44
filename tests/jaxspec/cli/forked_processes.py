"""Real processes of the command line without the seconds that each needs to import JAX: one warm process forks them.

The warm process has imported everything and started no backend, so that a child is what a new process is after its imports:
own arguments, working directory, standard streams and exit code.
"""

import json
import os
import subprocess
import sys
from typing import NamedTuple

_WARM = r"""
import json, os, signal, sys, traceback
import jaxspec.cli.containers
from jaxspec.studies.study import STUDIES, find_study
from jaxspec.registries import load_object

for study in map(find_study, STUDIES):
    load_object(study.run), load_object(study.present)
from jaxspec.cli.app import main

def child(case):
    os.chdir(case["folder"])
    for number, name in ((0, os.devnull), (1, case["out"]), (2, case["err"])):
        opened = os.open(name, os.O_RDWR | (os.O_CREAT | os.O_TRUNC if number else 0))
        os.dup2(opened, number)
        os.close(opened)
    signal.alarm(case["limit_s"])
    try:
        main(case["arguments"])
        code = 0
    except SystemExit as leaving:
        code = leaving.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    number = os.fork()
    if number == 0:
        child(json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)
"""


class Ended(NamedTuple):
    """What a process left: exit code and what it printed."""

    code: int
    out: str
    err: str


class ForkedProcesses:
    """Runs `jaxspec ...` in processes of their own, one after another."""

    def __init__(self, scratch):
        self._out, self._err = scratch / "out.txt", scratch / "err.txt"
        self._warm = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _WARM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu", "COLUMNS": "200"},
        )

    def run(self, arguments, folder, *, limit_s=120):
        """One process, in a folder."""
        case = {
            "arguments": list(map(str, arguments)),
            "folder": str(folder),
            "out": str(self._out),
            "err": str(self._err),
        }
        assert self._warm.stdin is not None
        assert self._warm.stdout is not None
        print(json.dumps(case | {"limit_s": limit_s}), file=self._warm.stdin, flush=True)
        code = int(self._warm.stdout.readline())
        return Ended(code, self._out.read_text(encoding="utf-8"), self._err.read_text(encoding="utf-8"))

    def close(self):
        """End the warm process."""
        assert self._warm.stdin is not None
        self._warm.stdin.close()
        self._warm.wait(30)
        self._warm.stdout.close()
