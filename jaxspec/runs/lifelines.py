"""Connections between processes that need each other, on which nothing is said but the end.

Where a process of a mesh ends, the others would wait for its part of some array: for ever, or until JAX notices and ends them
with a stack trace. Each of them holds a connection to process 0, which the operating system closes when a process ends,
however it ends; a thread waits for that.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

from jaxspec.errors import InputError
from jaxspec.interruption import UNDER_WAY

if TYPE_CHECKING:
    from jaxspec.runs.processes import Processes

__all__ = ["Lifelines"]

#: Seconds that a process tries to reach process 0 at each of its addresses; one that cannot does without.
_REACH_S = 5.0

#: Seconds that process 0, when it ends, waits for the others to end before it: JAX would print a stack trace in each.
_LAST_S = 2.0

#: Seconds from a failed exchange between devices to the news that a process has ended.
_NEWS_S = 5.0

#: What process 0 says before it ends with a line of its own.
_ENDING = b"e"


class Lifelines:
    """Those of one process, from when all have called this until `release` or the end of one."""

    def __init__(self, processes: Processes):
        """Connect; all processes call this together."""
        self._processes, self._over = processes, threading.Event()
        self._others: dict[int, socket.socket] = {}
        UNDER_WAY.begin(self, self.end_others)
        token = processes.told(secrets.token_bytes(16))
        if processes.owns:
            dual = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if dual else socket.AF_INET
            server = socket.create_server(("", 0), family=family, dualstack_ipv6=dual, backlog=processes.count)
            name = socket.gethostname()
            processes.told(([socket.getfqdn(), name, *_addresses(name)], server.getsockname()[1]))
            self._thread(self._accept, server, token)
        else:
            hosts, port = processes.told(([], 0))
            self._reach(hosts, port, token)

    def _thread(self, work, *arguments) -> None:
        threading.Thread(target=work, args=arguments, name="lifelines", daemon=True).start()

    def _accept(self, server: socket.socket, token: bytes) -> None:
        with server:
            while len(self._others) < self._processes.count - 1:
                other, _ = server.accept()
                other.settimeout(_REACH_S)
                with contextlib.suppress(OSError):
                    said = other.recv(len(token) + 4, socket.MSG_WAITALL)
                    if secrets.compare_digest(said[:-4], token):
                        other.settimeout(None)
                        index = int.from_bytes(said[-4:], "big")
                        self._others[index] = other
                        self._thread(self._watch, index, other)

    def _reach(self, hosts: list[str], port: int, token: bytes) -> None:
        for host in hosts:
            with contextlib.suppress(OSError):
                other = socket.create_connection((host, port), timeout=_REACH_S)
                other.settimeout(None)
                other.sendall(token + self._processes.index.to_bytes(4, "big"))
                self._others[0] = other
                self._thread(self._watch, 0, other)
                return

    def _watch(self, index: int, other: socket.socket) -> None:
        said = b""
        with contextlib.suppress(OSError):
            said = other.recv(1)
        if self._over.is_set():
            return
        left, processes = UNDER_WAY.abandon(), self._processes
        ended = f"process {index} of {processes.count} has ended, see its message"
        if processes.owns:
            os.write(2, f"jaxspec: {ended}; {left}\n".encode())
        elif said != _ENDING:
            os.write(2, f"jaxspec: {ended}; so {processes} ends\n".encode())
        os._exit(2)

    def end_others(self) -> None:
        """Let the others end without a line: this process has one to say, or has said it, and ends."""
        if self._over.is_set():
            return
        self._over.set()
        until = time.monotonic() + _LAST_S
        for other in self._others.values():
            with contextlib.suppress(OSError):
                if self._processes.owns:
                    other.sendall(_ENDING)
        for other in self._others.values():
            with contextlib.suppress(OSError):
                if self._processes.owns:
                    other.settimeout(max(until - time.monotonic(), 0.01))
                    other.recv(1)
                other.close()

    def fail(self, error: BaseException) -> None:
        """This process ends by an exception, which is not printed yet."""
        import jax

        if self._over.is_set():
            return
        if isinstance(error, jax.errors.JaxRuntimeError):
            time.sleep(_NEWS_S)  # an exchange fails where another process has ended: that is the line to end with
        self.end_others()
        code = 2 if isinstance(error, InputError) else 130 if isinstance(error, KeyboardInterrupt) else 1
        # JAX would wait for the others before the interpreter ends.
        atexit.register(_end, code)

    def release(self) -> None:
        """From now on, processes may end."""
        self._over.set()
        UNDER_WAY.end(self)


def _addresses(name: str) -> list[str]:
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None)})
    except OSError:
        return []


def _end(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
