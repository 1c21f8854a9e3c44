"""What the tests do with the code blocks of the README and the guide, by language.

| language | what is done |
|---|---|
| `python` | executed, all blocks of a page in one namespace; a comment behind a `print` must be what it prints |
| `bash` | every command is parsed by its own program and its settings are resolved; the work itself is left out |
| `console` | the same for its lines that begin with `$ ` |
| `toml`, `json` | parsed; a file of a device is read as one |
| `text`, `math` | nothing: output, diagrams, formulas |

Files that commands name (`DIR`, `my.toml`, ...) are made in an empty working directory, as `stand_ins` lists them. Blocks that
only prepare what a page takes for granted stand in its source as `invisible-code-block`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import importlib
import io
import itertools
import json
import math
import re
import shlex
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).parents[1]

#: Programs that a reader is told to call, and that have tests of their own or need none.
OTHER_PROGRAMS = {".ci/run", "cmp", "echo", "mkdocs", "pre-commit", "pyright", "ruff", "source"}

_SEPARATORS = {"&&", ";", "|", "||"}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


class WorkLeftOut(BaseException):
    """A command has read its arguments and settings and would begin to work. No `Exception`: nothing may swallow it."""


# --- Python


def _printed_comments(source: str) -> dict[int, str]:
    """Comments behind code, by line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = source.splitlines()
    found = {
        t.start[0]: t.string[1:].strip()
        for t in tokens
        if t.type == tokenize.COMMENT and lines[t.start[0] - 1][: t.start[1]].strip()
    }
    return {line: text for line, text in found.items() if "print(" in lines[line - 1]}


def same_output(printed: str, stated: str) -> bool:
    """Whether a comment states what was printed.

    Line breaks may be commas in the comment, numbers may differ by their last digits, and an explanation may follow behind
    a colon.
    """
    printed = ", ".join(printed.strip().splitlines())
    words = lambda text: re.sub(r"[\s,]", "", _NUMBER.sub("#", text))
    for candidate in (stated, stated.split(":")[0]):
        if words(printed) == words(candidate):
            pairs = zip(_NUMBER.findall(printed), _NUMBER.findall(candidate), strict=True)
            if all(math.isclose(float(a), float(b), rel_tol=1e-4) for a, b in pairs):
                return True
    return False


def run_python(source: str, namespace: dict, *, path: str = "<example>", first_line: int = 1) -> None:
    """Execute a block statement by statement.

    Args:
        first_line: of the block in its page, for tracebacks.
    Raises:
        AssertionError: something else was printed than the comment says. Whatever the code raises goes through.
    """
    comments = _printed_comments(source)
    for node in ast.parse(source).body:
        stated = [
            comments[line] for line in range(node.lineno, (node.end_lineno or node.lineno) + 1) if line in comments
        ]
        ast.increment_lineno(node, first_line - 1)
        code = compile(ast.Module([node], []), path, "exec", dont_inherit=True)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, namespace)
        if stated and not same_output(output.getvalue(), " ".join(stated)):
            raise AssertionError(f"{path}:{node.lineno} prints {output.getvalue()!r}, its comment says {stated}")


# --- Commands


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
    from jaxspec.studies.measured.setup import resolve_pricing
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
    "jaxspec.runs.directory:RunDirectory.__init__": _claim,
    "jaxspec.studies.predict.run:_price": _leave_out,
    "jaxspec.studies.pack.run:_division": _leave_out,
    "jaxspec.studies.pack.run:pack": _leave_out,
    "jaxspec.studies.pack.run:unpack_container": _leave_out,
    "jaxspec.studies.pack.inspection:inspect_file": _leave_out,
}


def _check_jaxspec(arguments: list[str], output: str | None) -> None:
    from jaxspec.cli import main

    inputs = [a for before, a in itertools.pairwise(["", *arguments]) if before not in ("-o", "--out")]
    for name, make in stand_ins().items():
        if any(name in argument.split(",") for argument in inputs) and not Path(name).exists():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            make(Path(name))
    printed, said = io.StringIO(), io.StringIO()
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


# --- Files that commands name


def _small_network(folder: Path) -> None:
    import jax
    import ml_dtypes
    import numpy as np

    from jaxspec.models import DecoderConfig, save_directory
    from jaxspec.models.decoder import abstract_params

    config = DecoderConfig(256, 16, 24, 1, 2, 1, 8)
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.standard_normal(leaf.shape).astype(ml_dtypes.bfloat16)
    save_directory(jax.tree.map(draw, abstract_params(config)), config, folder, max_positions=8192)


def _copied(name: str) -> Callable[[Path], object]:
    return lambda path: path.write_bytes((ROOT / "jaxspec" / "models" / "embedded" / name).read_bytes())


def _written(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, encoding="utf-8")


def _container(path: Path) -> None:
    from jaxspec.studies import PackConfig, pack_checkpoint

    network = path.with_name("network-for-a-container")
    _small_network(network)
    pack_checkpoint(PackConfig(model=str(network), scheme="raw"), path)


def _device(path: Path) -> None:
    path.write_bytes((ROOT / "hwmodels" / "catalog" / "devices" / "rtx-4090.toml").read_bytes())


def stand_ins() -> dict[str, Callable[[Path], object]]:
    """How each file that a documented command names is made."""
    return {
        "DIR": _small_network,
        "FILE": _written("A text of some length, again and again.\n" * 500),
        "config.json": _copied("config.json"),
        "path/to/config.json": _copied("config.json"),
        "model.jspk": _container,
        "huffman.jspk": _container,
        "model.safetensors": _copied("model.safetensors"),
        "my.toml": _device,
        "my-chip.toml": _device,
        "run.toml": _written("batch = 2\n"),
        "runs/tune-0123456789ab/result.json": _written("[]"),
        "runs/tune-.../result.json": _written("[]"),
    }


# --- Blocks


def check_bash(source: str) -> None:
    """All commands of a block."""
    for words, output in split_commands(source):
        check_command(words, output)


def check_console(source: str) -> None:
    """All commands of a transcript."""
    check_bash("\n".join(line[2:] for line in source.splitlines() if line.startswith("$ ")))


def check_toml(source: str) -> None:
    """A TOML block; one with a rate of arithmetic is a device."""
    if "peak_flops_per_s" in tomllib.loads(source):
        from hwmodels.catalog.device_entries import parse_device

        parse_device(source, where="the block")


def check_text(source: str) -> None:
    """Nothing."""


#: What is done with a block of each language but `python`.
CHECKS: dict[str, Callable[[str], object]] = {
    "bash": check_bash,
    "console": check_console,
    "toml": check_toml,
    "json": json.loads,
    "text": check_text,
    "math": check_text,
}


def pages() -> list[Path]:
    """Every page of which the code blocks are checked."""
    found = itertools.chain(
        ROOT.glob("*.md"), (ROOT / "docs" / "pages").glob("*.md"), (ROOT / "docs" / "decisions").glob("*.md")
    )
    return sorted(found)


def ensure_importable() -> None:
    """`experiments` is imported from the repository, wherever tests begin."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
