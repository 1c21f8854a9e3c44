"""Choose the checks that run with `pytest -m slow` alone by what they took: `tests/slow_checks.txt` anew.

    pytest -m 'not oracle' --junitxml=durations.xml
    python tests/choose_slow_checks.py durations.xml

A check is long that takes more than a five-thousandth of all. Each module keeps long ones in every run as far as they have
room, a nine-hundredth of all, and one in any case, beside all its quick ones; gradients and draws go first, and what `KEPT`
names stays whole. Times are shares of all, so that neither the machine nor its load matters. With `--add` the list keeps what
it has, and the reports need not have it.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from slow_checks import CHOSEN, LONG_CHECKS, SLOW_CHECKS

HERE = Path(__file__).parent

#: A check is long that takes more than this share of all.
LONG = 1 / 5000

#: Long checks of a module have this share of all.
ROOM = 1 / 900

#: What stays in every run, whatever it takes: whole commands, contracts of registries, promises of the README.
KEPT = tuple(
    map(
        re.compile,
        (
            r"^tests/jaxspec/studies/test_end_to_end\.py",
            r"^tests/jaxspec/compress/schemes/test_(new_scheme|scheme_contract)\.py",
            r"^tests/jaxspec/cli/test_processes\.py",
            r"^tests/jaxspec/speculate/drafts/test_draft_contract\.py",
            r"^tests/hwmodels/compute/test_(unit_contract|new_unit)\.py",
            r"^tests/experiments/papers/test_contract\.py",
            r"^tests/jaxspec/tuning/test_objective\.py::test_gradient_in_every_knob",
            r"^tests/hwmodels/(network/operators/test_operators\.py::test_gradient|.*/test_speculation\.py::test_gradient_of_the_)",
            r"^tests/jaxspec/models/test_decoder(_gradients)?\.py::test_(token_by_token|gradient_agrees)",
            r"^tests/jaxspec/compress/test_weights\.py::test_the_hard_draft_is_a_bitwise_part",
            r"^tests/jaxspec/speculate/test_chain\.py::test_greedy",
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


def slow_of(seconds: dict[str, float]) -> list[str]:
    """Node ids of the slow checks, sorted."""
    total = sum(seconds.values())
    taken: dict[str, float] = defaultdict(float)
    found = []
    for name in sorted(seconds, key=lambda name: bool(_FIRST_TO_GO.search(name))):
        share, module = seconds[name] / total, name.partition("::")[0]
        if share <= LONG or any(pattern.search(name) for pattern in (*KEPT, *SLOW_CHECKS)):
            continue
        if taken[module] and taken[module] + share > ROOM:
            found.append(name)
        else:
            taken[module] += share
    return sorted(found)


def main() -> None:
    """Read reports, write the list, say what it leaves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "reports", nargs="+", type=Path, metavar="FILE", help="of `pytest --junitxml=FILE`, of all tests together"
    )
    parser.add_argument("--add", action="store_true", help="keep what is chosen already, and choose among the rest")
    asked = parser.parse_args()
    seconds: dict[str, float] = {}
    for report in asked.reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = node_id(case.get("classname") or "", case.get("name") or "")
            if name is not None:
                seconds[name] = float(case.get("time") or 0.0)
    chosen = slow_of(seconds)
    every = sorted({*chosen, *(LONG_CHECKS if asked.add else ())})
    CHOSEN.write_text("".join(f"{name}\n" for name in every), encoding="utf-8")
    share = sum(seconds[name] for name in chosen) / sum(seconds.values())
    sys.stdout.write(f"{len(chosen)} of {len(seconds)} checks are slow; they take {share:.0%} of the time\n")


if __name__ == "__main__":
    main()
