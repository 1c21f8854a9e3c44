"""Output of commands that the guide shows is what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import page_commands
import pytest

ROOT = Path(__file__).parents[1]


TUTORIAL = (ROOT / "docs" / "pages" / "tutorial.md").read_text(encoding="utf-8")


def printed(*words: str, folder: Path, **variables: str) -> str:
    """Standard output of a command, piped: as wide as it is."""
    own = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"PYTHONPATH": str(ROOT)}
    own |= variables
    command = [sys.executable, "-m", "jaxspec", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=own, timeout=300)
    return done.stdout


@pytest.mark.study
@pytest.mark.parametrize(
    ("commands", "shown"),
    [pair for pair in re.findall(r"```bash\n([^`]*)```\n\n```text\n([^`]*)```", TUTORIAL) if "tune" not in pair[0]],
)
def test_tutorial(commands, shown, tmp_path):
    """All but tuning, whose last digits depend on the processor; dots stand for lines that are left out."""
    for words, target in page_commands.split_commands(commands):
        output = printed(*words[1:], folder=tmp_path, COLUMNS="110")
        if target:
            (tmp_path / target).write_text(output, encoding="utf-8")
    assert [line for line in shown.splitlines() if line != "..." and line not in output.splitlines()] == []
