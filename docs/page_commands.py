"""Commands of a page: each is parsed by its own program and its settings are resolved; the work itself is left out."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import itertools
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from page_python import run_python
from stand_ins import stand_ins

ROOT = Path(__file__).parents[1]

#: Programs that a reader is told to call, and that have tests of their own or need none.
OTHER_PROGRAMS = {".ci/run", "cmp", "echo", "mkdocs", "pre-commit", "pyright", "ruff", "source"}

_SEPARATORS = {"&&", ";", "|", "||"}


class WorkLeftOut(BaseException):
    """A command has read its arguments and settings and would begin to work. No `Exception`: nothing may swallow it."""


def split_commands(script: str) -> Iterator[tuple[list[str], str | None]]:
    """The words of each command of a shell script, and the file that its output goes to, if any."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in _SEPARATORS:
                words.append(word)
                continue
            if words:
                target = words[words.index(">") + 1] if ">" in words else None
                yield words[: words.index(">")] if target else words, target
            words = []


def check_command(words: list[str], output: str | None = None) -> None:
    """Parse one command with its own program, and resolve its settings.

    Raises:
        AssertionError: it would be refused.
    """
    match words:
        case ["jaxspec", *arguments]:
            _check_jaxspec(arguments, output)
        case ["srun" | "mpirun", *launch] if "jaxspec" in launch:
            check_command(launch[launch.index("jaxspec") :], output)
        case ["python", "-m", module, *arguments] if module.startswith("experiments"):
            _check_experiment(module, arguments)
        case ["python", "-c", code]:
            run_python(code, {})
        case ["python", "-m", "venv", _] | ["pytest"]:
            pass
        case ["python", script, *arguments] if script.endswith(".py"):
            assert (ROOT / script).is_file(), f"{script} does not exist"
            assert "--help" not in arguments
        case ["pip", "install", "-e", target]:
            extras = _project()["project"]["optional-dependencies"]
            asked = re.fullmatch(r"\.(?:\[([\w,]+)\])?", target)
            assert asked, f"pip install -e {target}"
            assert set((asked[1] or "").split(",")) <= {*extras, ""}, f"{target}: extras are {sorted(extras)}"
        case ["pytest", "-m", marker]:
            known = [text.split(":")[0] for text in _project()["tool"]["pytest"]["ini_options"]["markers"]]
            assert marker in known, f"pytest -m {marker}: markers are {known}"
        case [program, *_]:
            assert program in OTHER_PROGRAMS, f"the tests cannot check {shlex.join(words)!r}"


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _leave_out(*_: object, **__: object) -> None:
    raise WorkLeftOut


def _claim(_: object, command: str, config: object, **__: object) -> None:
    """In place of a run directory's constructor: all that the configuration names must exist."""
    from jaxspec.models import load_model
    from jaxspec.settings import CommonConfig
    from jaxspec.speculate.drafts import make_draft
    from jaxspec.studies import TreeConfig
    from jaxspec.studies.measured.pricing import resolve_pricing
    from jaxspec.text import load_text

    if isinstance(config, CommonConfig):
        loaded = load_model(config.model)
        load_text(config.text, loaded.tokenizer)
        for device in config.device:
            resolve_pricing(config, device, loaded.config)
        if isinstance(config, TreeConfig) and config.draft != "self":
            make_draft(config.draft, loaded)
    raise WorkLeftOut


#: Where the work of a command begins, once its arguments are read: "module:name".
_WORK: dict[str, Callable] = {
    "jaxspec.models.embedded:pretrained_file": _leave_out,  # of a package that need not be installed
    "jaxspec.runs.directory:RunDirectory.__init__": _claim,
    "jaxspec.runs.processes:start_processes": _leave_out,
    "jaxspec.studies.predict.run:_price": _leave_out,
    "jaxspec.studies.serve.run:_served": _leave_out,
    "jaxspec.studies.codesign.problem:_check_budgets": _leave_out,
    "jaxspec.studies.export.run:export_draft": _leave_out,
    "jaxspec.studies.pack.run:_split": _leave_out,
    "jaxspec.studies.pack.run:pack": _leave_out,
    "jaxspec.studies.pack.run:unpack_container": _leave_out,
    "jaxspec.studies.pack.run:inspect_file": _leave_out,
    "jaxspec.studies.sweep.run:merge_sweeps": _leave_out,
    "jaxspec.runs.run_index:list_runs": _leave_out,
    "jaxspec.runs.run_index:find_run": _leave_out,
    "jaxspec.runs.run_index:compare_runs": _leave_out,
    "jaxspec.api.calls:resume": _leave_out,
}


def _check_jaxspec(arguments: list[str], output: str | None) -> None:
    from jaxspec.cli import main

    inputs = [a for before, a in itertools.pairwise(["", *arguments]) if before not in ("-o", "--out")]
    for name, make in stand_ins().items():
        if any(name in argument.split(",") for argument in inputs) and not Path(name).exists():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            make(Path(name))
    printed, said = io.StringIO(), io.StringIO()
    for place in _WORK:  # before anything is replaced: a module imported later would keep the replacement
        importlib.import_module(place.partition(":")[0])
    with contextlib.ExitStack() as stack:
        for place, stub in _WORK.items():
            module, _, name = place.partition(":")
            *owners, last = name.split(".")
            owner = functools.reduce(getattr, owners, importlib.import_module(module))
            stack.enter_context(patch.object(owner, last, stub))
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(said))
        try:
            main(arguments)
        except WorkLeftOut:
            pass
        except SystemExit as end:
            if end.code:
                refused = shlex.join(["jaxspec", *arguments])
                raise AssertionError(f"{refused} is refused: {said.getvalue()}") from end
    if output:
        Path(output).write_text(printed.getvalue(), encoding="utf-8")


def _check_experiment(module: str, arguments: list[str]) -> None:
    loaded = importlib.import_module(f"{module}.__main__" if (ROOT / module.replace(".", "/")).is_dir() else module)
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(self: argparse.ArgumentParser, *_: object) -> None:
        parse(self, arguments)
        raise WorkLeftOut

    said = io.StringIO()
    with patch.object(argparse.ArgumentParser, "parse_args", parse_and_stop), contextlib.redirect_stderr(said):
        try:
            loaded.main()
        except WorkLeftOut:
            return
        except SystemExit as end:
            raise AssertionError(f"{module} {shlex.join(arguments)} is refused: {said.getvalue()}") from end
    raise AssertionError(f"{module} reads no arguments")
