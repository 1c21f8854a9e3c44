"""The chat template of a checkpoint: from messages to the text that its network was trained on.

A template comes with the checkpoint and is a program. It runs in Jinja's sandbox, with the functions that templates expect, in
a process with limits of time and memory (`template_renderer`), which is started once for each template.

Source: `apply_chat_template` of Hugging Face `transformers`.
Departs: `strftime_now` tells one fixed date, so that the same messages give the same tokens on every day.
"""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, one_line
from jaxspec.models import template_renderer
from jaxspec.models.special_tokens import json_beside, read_beside, special_texts
from jaxspec.models.template_renderer import TEMPLATE_DATE

__all__ = ["TEMPLATE_DATE", "ChatTemplate", "load_chat_template"]

#: Runs a file with the search path of this process, which spares reading it anew.
_START = "import runpy, sys; sys.path[:] = sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"


class ChatTemplate:
    """A compiled chat template.

    Raises:
        InputError: it is no valid template.
    """

    def __init__(self, source: str, path: Path, special: dict[str, str]):
        """Compile.

        Args:
            path: what errors call it.
            special: texts of special tokens by name.
        """
        self._path, self._special = path, special
        try:
            self._renderer = _renderer(source)
        except ValueError as error:
            raise InputError(f"{path}: its chat template is not valid ({one_line(error)}); fetch it again") from error

    def render(self, messages: Sequence[dict[str, Any]], *, begin_answer: bool) -> str:
        """The text of a conversation.

        Args:
            messages: each with "role" and "content"; values that JSON has.
            begin_answer: add what stands before an assistant's next answer.
        Raises:
            InputError: the template refuses the messages, or needs too much time or memory.
        """
        given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": begin_answer}
        try:
            return self._renderer.text(given | self._special)
        except (ValueError, TypeError) as error:
            raise InputError(f"the chat template of {self._path} refuses the messages ({one_line(error)})") from error


class _Renderer:
    """A process that renders one template; it is started again where it ended."""

    def __init__(self, source: str):
        self._source, self._lock = source, threading.Lock()
        self._process = self._started()

    def text(self, given: dict[str, Any]) -> str:
        """What the template makes of its variables.

        Raises:
            ValueError: with the reason, where it makes nothing.
        """
        with self._lock:
            if self._process.poll() is not None:
                self._process = self._started()
            return _answer(self._process, given)

    def _started(self) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, template_renderer.__file__, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
        )
        weakref.finalize(self, _end, process)
        _answer(process, self._source)
        return process


#: Several readers of one command name the same checkpoint.
_renderer = functools.lru_cache(maxsize=4)(_Renderer)


def _answer(process: subprocess.Popen, given: Any) -> str:
    """What a process answers to one line.

    Raises:
        ValueError: with the reason, where it gives no text.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    line, answer = json.dumps(given).encode("ascii") + b"\n", b""
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line)
        process.stdin.flush()
        answer = process.stdout.readline()
    if answer.endswith(b"\n"):
        found = json.loads(answer)
        if "text" in found:
            return found["text"]
        raise ValueError(found["error"])
    _end(process)
    late = process.returncode == -signal.SIGALRM
    raise ValueError(
        f"it takes more than {template_renderer.SECONDS} s" if late else f"its process ends with {process.returncode}"
    )


def _end(process: subprocess.Popen) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    process.kill()
    process.wait()


def load_chat_template(place: Path) -> ChatTemplate | None:
    """The chat template of a directory or container; None: it has none.

    It is chat_template.jinja, else that of tokenizer_config.json. Of several named ones the one called "default" is taken.

    Raises:
        InputError: a file that cannot be read, or a template that is not valid.
    """
    own = read_beside(place, "chat_template.jinja")
    if own is not None:
        path, source = place / "chat_template.jinja", own.decode("utf-8", errors="replace")
    else:
        path, source = place / "tokenizer_config.json", json_beside(place, "tokenizer_config.json").get("chat_template")
    if isinstance(source, list):
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if source is None:
        return None
    if not isinstance(source, str):
        raise InputError(
            f"{path} has a chat_template of type {type(source).__name__}; it must be a text: fetch it again"
        )
    return ChatTemplate(source, path, special_texts(place))
