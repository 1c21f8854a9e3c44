"""The one exception that means: what came from outside cannot be used."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input: a file, a directory, an option or a value that a user gave.

    The message is one line that says what came, what is allowed and what to do. The command line prints it alone and
    exits with code 2; every other exception is our own bug and keeps its traceback.
    """


def one_line(error: BaseException) -> str:
    """What an error of another library says, without line breaks, to stand within a message of ours."""
    return " ".join(str(error).split())


class SaidElsewhereError(InputError):
    """Bad input that another process of the same run tells the user: this one ends with exit code 2 and says nothing."""


class SaidTogetherError(InputError):
    """Bad input of any process of a run, which all have heard of: this one tells the user."""
