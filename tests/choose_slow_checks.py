"""Choose the checks that run with `pytest -m slow` alone by what they took: `tests/slow_checks.txt` anew.

    pytest --junitxml=durations.xml
    python tests/choose_slow_checks.py --add durations.xml

A check is long that takes more than a two-thousandth of all. Each module keeps the shortest of its long ones in every run, if
that takes no more than a thousandth, beside all its quick ones; gradients and draws go first, and what `KEPT` names stays
whole. So does the check that makes what others of its module share (a fixture of theirs), since the next one would only make
it instead; where making takes more than a thousandth, and more than a four-thousandth for each that shares it, all of them
go. Times are shares of what the reports hold, so that neither the machine nor its load matters. With `--add` the list keeps
what they do not have; without it, from reports of slow checks too, it is made anew.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from slow_checks import CHOSEN, LONG_CHECKS, SLOW_CHECKS

HERE = Path(__file__).parent

#: A check is long that takes more than this share of all.
LONG = 1 / 2000

#: What takes more than this share of all stays in every run only where `KEPT` says so.
MOST = 1 / 1000

#: For each check that shares a fixture, the share of all that making it may take.
MOST_OF_EACH = 1 / 4000

#: What stays in every run, whatever it takes: whole commands, contracts of registries, promises of the README.
KEPT = tuple(
    map(
        re.compile,
        (
            r"^tests/jaxspec/studies/test_end_to_end\.py::(?!test_(a_run_stopped|sampled_tokens))",
            r"^tests/jaxspec/studies/(compare/test_compare_run|tree/test_tree_search|scale/test_scale_run)\.py::test_e",
            r"^tests/jaxspec/compress/schemes/test_(new_scheme|scheme_contract)\.py",
            r"^tests/jaxspec/cli/test_processes\.py",
            r"^tests/jaxspec/speculate/drafts/test_draft_contract\.py::(?!test_chains_trees_.*\[(head|q4|table)\])",
            r"^tests/hwmodels/compute/test_(unit_contract|new_unit)\.py",
            r"^tests/experiments/papers/test_contract\.py::.*\[(fpga_tree_sd|huffllm|mobile_npu)\]",
            r"^tests/jaxspec/tuning/test_objective\.py::test_gradient_in_every_knob",
            r"^tests/hwmodels/(network/operators/test_operators\.py::test_gradient|.*/test_speculation\.py::test_gradient_of_the_)",
            r"^tests/jaxspec/models/test_decoder(_gradients)?\.py::test_(token_by_token|gradient_agrees)",
            r"^tests/jaxspec/compress/test_weights\.py::test_the_hard_draft_is_a_bitwise_part",
            r"^tests/jaxspec/speculate/test_chain\.py::test_greedy",
            r"^tests/jaxspec/studies/pack/test_packed_evaluations\.py::test_the_packed_draft_",
            r"^tests/jaxspec/studies/test_elastic_runs\.py::test_a_mixture_decodes_",
            r"^tests/test_",
        ),
    )
)

#: What is the first to go.
_FIRST_TO_GO = re.compile(r"gradient|slope|batch|retrace|vmap|drawn|memory")


def node_id(classname: str, name: str) -> str | None:
    """Of a case of a report; None of one that stands in no module of tests."""
    parts = classname.split(".")
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end]) + ".py"
        if (HERE.parent / path).exists():
            return "::".join([path, *parts[end:], name])
    return None


class Fixtures:
    """A plugin of pytest: of each collected test the fixtures of its module that several tests share."""

    def __init__(self):
        self.of: dict[str, set[str]] = {}

    def pytest_collection_finish(self, session) -> None:
        for item in session.items:
            found = getattr(item, "_fixtureinfo", None)  # code blocks have none
            module = item.nodeid.partition("::")[0]
            self.of[item.nodeid] = {
                name
                for name, definitions in (found.name2fixturedefs if found else {}).items()
                if definitions[-1].scope != "function" and definitions[-1].baseid == module
            }


def slow_of(seconds: dict[str, float], fixtures: dict[str, set[str]]) -> list[str]:
    """Node ids of the slow checks, sorted.

    Args:
        seconds: of each check, what it makes first included.
        fixtures: of each check in the order of their running, as of `Fixtures`.
    """
    total = sum(seconds.values())
    shares = {name: each / total for name, each in seconds.items() if not _is_named(name, SLOW_CHECKS)}
    users = _users(shares.keys(), fixtures)
    stay, gone = set(), set()
    while True:
        found = _longest(shares, stay, gone)
        makers = _makers(found - gone, fixtures, users)
        if not makers:
            return sorted(found)
        for name, shared in makers.items():
            too_long = shares[name] > max(MOST, MOST_OF_EACH * len(shared))
            if too_long and not any(_is_named(other, KEPT) for other in shared):
                gone |= shared
            else:
                stay.add(name)


def _is_named(name: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    return any(pattern.search(name) for pattern in patterns)


def _longest(shares: dict[str, float], stay: set[str], gone: set[str]) -> set[str]:
    found, served = set(gone), set()
    for name in sorted(
        shares.keys() - gone - stay, key=lambda name: (bool(_FIRST_TO_GO.search(name)), shares[name], name)
    ):
        share, module = shares[name], name.partition("::")[0]
        if share <= LONG or _is_named(name, KEPT):
            continue
        if share > MOST or module in served:
            found.add(name)
        else:
            served.add(module)
    return found


def _users(names: Iterable[str], fixtures: dict[str, set[str]]) -> dict[tuple[str, str], list[str]]:
    """Of a module and a fixture the checks that share it, in the order of their running."""
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in fixtures:
        if name in names:
            for fixture in fixtures[name]:
                users[name.partition("::")[0], fixture].append(name)
    return users


def _makers(
    slow: set[str], fixtures: dict[str, set[str]], users: dict[tuple[str, str], list[str]]
) -> dict[str, set[str]]:
    """Of the slow checks those that make all they share for others of their module that are in every run, with all these."""
    found = {}
    for name in slow & fixtures.keys():
        shared = [users[name.partition("::")[0], fixture] for fixture in fixtures[name]]
        alone = any(all(other in slow for other in each) for each in shared)
        made = [each for each in shared if each and each[0] == name]
        if not alone and made:
            found[name] = set().union(*made)
    return found


def main() -> None:
    """Read reports, write the list, say what it leaves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "reports", nargs="+", type=Path, metavar="FILE", help="of `pytest --junitxml=FILE`, of all tests together"
    )
    parser.add_argument("--add", action="store_true", help="keep what is chosen already and is in no report")
    asked = parser.parse_args()
    seconds: dict[str, float] = {}
    for report in asked.reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = node_id(case.get("classname") or "", case.get("name") or "")
            if name is not None:
                seconds[name] = float(case.get("time") or 0.0)
    collected = Fixtures()
    pytest.main(["--collect-only", "-qq", "-n", "0", "-m", "not oracle"], plugins=[collected])
    seconds = {name: each for name, each in seconds.items() if name in collected.of}  # those that still are
    chosen = slow_of(seconds, collected.of)
    kept = [name for name in LONG_CHECKS if name in collected.of and name not in seconds] if asked.add else []
    every = sorted({*chosen, *kept})
    CHOSEN.write_text("".join(f"{name}\n" for name in every), encoding="utf-8")
    share = sum(seconds[name] for name in chosen) / sum(seconds.values())
    sys.stdout.write(f"{len(chosen)} of {len(seconds)} checks are slow; they take {share:.0%} of the time\n")


if __name__ == "__main__":
    main()
