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


def printable(text: str) -> str:
    """Text from outside as a terminal may be given it: characters that it would obey, or cannot show, are U+FFFD.

    Line breaks and spaces of all kinds stay.
    """
    kept = lambda character: (
        character.isprintable() or character in "\n\t" or (character.isspace() and character > "\x9f")
    )
    return text if text.isprintable() else "".join(one if kept(one) else "\ufffd" for one in text)


class ReportedByRank0Error(InputError):
    """Bad input that process 0 of the same run reports: this process ends with exit code 2 and prints nothing."""


class CollectiveInputError(InputError):
    """Bad input of any process of a run, raised on all of them: process 0 reports it."""
