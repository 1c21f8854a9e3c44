"""Choose the checks that run with `pytest -m slow` alone by what they took: `tests/slow_checks.txt` anew.

    pytest -m 'not oracle' --junitxml=durations.xml
    python tests/choose_slow_checks.py durations.xml

A check is slow that takes more than a two-thousandth of all. Each module keeps one of them in every run, the first that is no
gradient or draw, beside all its quick ones; what `KEPT` names stays whole. Times are shares of all, so that neither the machine
nor its load matters.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

from slow_checks import CHOSEN, SLOW_CHECKS

HERE = Path(__file__).parent

#: A check is slow that takes more than this share of all.
SHARE = 1 / 2000

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

#: What is the last to be kept of a module.
_LAST = re.compile(r"gradient|slope|batch|retrace|vmap|drawn|memory")


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
    least = SHARE * sum(seconds.values())
    by_module: dict[str, list[str]] = defaultdict(list)
    for name, taken in seconds.items():
        if taken > least and not any(pattern.search(name) for pattern in (*KEPT, *SLOW_CHECKS)):
            by_module[name.partition("::")[0]].append(name)
    found = []
    for names in by_module.values():
        stays = next((name for name in names if not _LAST.search(name)), names[0])
        found += [name for name in names if name != stays]
    return sorted(found)


def main() -> None:
    """Read reports, write the list, say what it leaves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "reports", nargs="+", type=Path, metavar="FILE", help="of `pytest --junitxml=FILE`, of all tests together"
    )
    seconds: dict[str, float] = {}
    for report in parser.parse_args().reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = node_id(case.get("classname") or "", case.get("name") or "")
            if name is not None:
                seconds[name] = float(case.get("time") or 0.0)
    chosen = slow_of(seconds)
    CHOSEN.write_text("".join(f"{name}\n" for name in chosen), encoding="utf-8")
    share = sum(seconds[name] for name in chosen) / sum(seconds.values())
    sys.stdout.write(f"{len(chosen)} of {len(seconds)} checks are slow; they take {share:.0%} of the time\n")


if __name__ == "__main__":
    main()
