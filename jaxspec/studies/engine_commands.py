"""Shell commands over several lines, and those that bring weights here."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

__all__ = ["downloaded", "shell_command"]

#: Owner and name of a repository of Hugging Face.
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def shell_command(program: str, *lines: Sequence[str | int]) -> str:
    """A shell command over several lines."""
    return " \\\n    ".join([program, *(shlex.join(map(str, words)) for words in lines)])


def downloaded(weights: str, folder: str) -> tuple[list[str], str]:
    """Commands that bring weights here for programs that read folders alone, and the folder where they then lie.

    Args:
        weights: a path; or, where none is there, owner and name of a repository of Hugging Face.
        folder: for those of a repository.
    """
    if os.path.exists(weights) or not _REPOSITORY.fullmatch(weights):
        return [], weights
    return [shell_command("hf download", [weights, "--local-dir", folder])], folder
