"""Which checks are beyond the fast suite, by their kind, and which eighth of them each is in."""

import collections
import itertools

from longest_units import LONGEST_S

#: Kinds of checks beyond the fast suite, as pyproject.toml registers them. `kind` alone marks a whole test; `kind(2)`
#: leaves its first two cases in every run, `kind("a", "b")` those with these ids.
#: Each with the seconds that a check of it takes on one core, roughly.
SECONDS = {"device_matrix": 1, "scheme_matrix": 1, "network": 1, "study": 8, "paper": 3, "signals": 4, "notebooks": 40}
NUM_PARTS = 8
#: Pages whose blocks run whole studies, longer than other pages.
PAGES_OF_STUDIES = tuple(
    f"docs/pages/{name}.md" for name in ("bring-your-model", "codesign", "serving", "test-time-scaling")
)


def are_beyond(items):
    """Of each item whether one of its kinds leaves it out of the fast suite."""
    cases = itertools.groupby(items, key=lambda item: item.nodeid.partition("[")[0])
    for place, item in ((place, item) for _, group in cases for place, item in enumerate(group)):
        marks = [mark for mark in item.iter_markers() if mark.name in (*SECONDS, "slow")]
        case = getattr(getattr(item, "callspec", None), "id", None)
        yield any(
            place >= mark.args[0] if mark.args and isinstance(mark.args[0], int) else case not in mark.args
            for mark in marks
        )


def seconds_of(items):
    """Seconds that the checks of each unit take beyond the fast suite: as listed, or else by their kinds."""
    kinds = [next((mark.name for mark in item.iter_markers() if mark.name in SECONDS), None) for item in items]
    by_kind = collections.Counter()
    for item, kind in zip(items, kinds):
        by_kind[unit_of(item)] += SECONDS.get(kind, 10)
    return {unit: LONGEST_S.get(unit, seconds) for unit, seconds in by_kind.items()}


def unit_of(item):
    """What one worker takes whole."""
    return item.nodeid.rpartition("::")[0]


def parts_of(units):
    """Of each unit, with its seconds, one of `NUM_PARTS` parts that take about as long."""
    loads, parts = [0] * NUM_PARTS, {}
    for unit, seconds in sorted(units.items(), key=lambda unit: (-unit[1], unit[0])):
        parts[unit] = loads.index(min(loads))
        loads[parts[unit]] += seconds
    return parts
