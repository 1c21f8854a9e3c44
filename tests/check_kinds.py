"""Which checks are beyond the fast suite, by their kind, and which eighth of them each is in."""

import itertools

#: Kinds of checks beyond the fast suite, as pyproject.toml registers them. `kind` alone marks a whole test; `kind(2)`
#: leaves its first two cases in every run, `kind("a", "b")` those with these ids.
KINDS = ("device_matrix", "scheme_matrix", "network", "study", "paper", "signals", "notebooks")
NUM_PARTS = 8


def are_beyond(items):
    """Of each item whether one of its kinds leaves it out of the fast suite."""
    cases = itertools.groupby(items, key=lambda item: item.nodeid.partition("[")[0])
    for place, item in ((place, item) for _, group in cases for place, item in enumerate(group)):
        marks = [mark for mark in item.iter_markers() if mark.name in (*KINDS, "slow")]
        case = getattr(getattr(item, "callspec", None), "id", None)
        yield any(
            place >= mark.args[0] if mark.args and isinstance(mark.args[0], int) else case not in mark.args
            for mark in marks
        )


def parts_of(units):
    """Of each unit, with its number of checks, one of `NUM_PARTS` parts of about as many checks."""
    loads, parts = [0] * NUM_PARTS, {}
    for unit, count in sorted(units.items(), key=lambda unit: (-unit[1], unit[0])):
        parts[unit] = loads.index(min(loads))
        loads[parts[unit]] += count
    return parts
