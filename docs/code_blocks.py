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

import itertools
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from page_commands import check_command, split_commands

ROOT = Path(__file__).parents[1]


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
    paths = itertools.chain(
        ROOT.glob("*.md"), (ROOT / "docs" / "pages").glob("*.md"), (ROOT / "docs" / "decisions").glob("*.md")
    )
    return sorted(paths)


def ensure_importable() -> None:
    """`experiments` is imported from the repository, wherever tests begin."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
