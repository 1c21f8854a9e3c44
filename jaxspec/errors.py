"""The one exception that means: what came from outside cannot be used."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CollectiveInputError",
    "InputError",
    "ReportedByRank0Error",
    "hint",
    "nearest",
    "one_line",
    "printable",
    "question",
]

# What a misspelt name was meant to be: one rule for commands, options, settings, axes, schemes and tensors.

#: Names that are this much less alike than the best one are not worth a question.
_MARGIN = 0.15

#: Longest name that is compared: the work grows with its square, and no name of ours is near it.
_LONGEST = 200


def nearest(name: str, allowed: Iterable[str], *, cutoff: float = 0.6) -> list[str]:
    """The names most like the given one, at most three, best first; letter case does not count.

    Letters that changed places are the commonest slip, so names made of the very same letters come before all others.

    Args:
        cutoff: similarity that counts as near, in [0, 1].
    """
    folded = {candidate.casefold(): candidate for candidate in allowed}
    given = name.casefold()[:_LONGEST]
    close = difflib.get_close_matches(given, folded, n=3, cutoff=cutoff)
    if same_letters := [match for match in close if sorted(match) == sorted(given)]:
        return [folded[match] for match in same_letters]
    alike = {match: difflib.SequenceMatcher(None, match, given).ratio() for match in close}
    return [folded[match] for match in close if alike[match] >= max(alike.values()) - _MARGIN]


def hint(
    name: object, allowed: Iterable[str], *, cutoff: float = 0.6, quote: bool = True, list_all: bool = True
) -> str:
    """The end of an error message about a name: "; did you mean 'x'? allowed are x, y".

    Args:
        name: what came; what is not a text is like nothing.
        quote: put suggestions between quotation marks, as values are; options and commands go without.
        list_all: name all that is allowed, or that only where nothing is near.
    """
    allowed = tuple(allowed)
    near = nearest(name, allowed, cutoff=cutoff) if isinstance(name, str) else []
    asked = f"; did you mean {' or '.join(map(repr, near) if quote else near)}?" if near else ""
    if near and not list_all:
        return asked
    return f"{asked or ';'} allowed are {', '.join(allowed)}"


def question(name: str, allowed: Iterable[str]) -> str:
    """The same where what is allowed is too much to name: "; did you mean 'x'?", or nothing."""
    allowed = tuple(allowed)
    return hint(name, allowed, list_all=False) if nearest(name, allowed) else ""


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
