"""`python -m experiments.fuzz_container --cases 100000 [--seed N]`; `--replay CASE` shows one of them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from experiments.fuzz_container.checking import (
    Result,
    change,
    compile_quickly,
    examine,
    listed,
    refusal,
    run_case,
)
from experiments.fuzz_container.samples import build_samples
from jaxspec.runs.progress import Reporter


def fuzz(cases: int, seed: int) -> tuple[Counter[str], list[Result]]:
    """Number of cases by outcome, and the failures, of cases 0 to `cases` - 1 of a seed."""
    samples, reporter = build_samples(), Reporter()
    outcomes: Counter[str] = Counter()
    failures: list[Result] = []
    with tempfile.TemporaryDirectory() as scratch, reporter.bar("damaged containers", cases) as bar:
        for case in range(cases):
            result = run_case(samples, seed, Path(scratch), case)
            outcomes[result.outcome] += 1
            if result.failed:
                failures.append(result)
                reporter.line(f"case {case} of seed {seed}: {result.outcome}: {result.detail}")
            bar.advance(f"{len(failures)} failures")
    return outcomes, failures


def replay(case: int, seed: int) -> None:
    """Run one case: its directory, what was done to it, and what came of it; a defect with its traceback."""
    sample, content, done, signed = change(build_samples(), seed, case)
    print(listed(content))
    print(f"{sample.name}, {'signed' if signed else 'as it was signed'}, {len(content)} bytes; {done}")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "a.jspk"
        path.write_bytes(content)
        print(examine(path, sample, signed=signed, unpacked=Path(scratch) / "out"), refusal(path))


def main() -> None:
    """Run and show; exit code 1 if any case failed."""
    parser = argparse.ArgumentParser(prog="python -m experiments.fuzz_container", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", type=int, metavar="CASE", help="run this case alone")
    args = parser.parse_args()
    compile_quickly()
    if args.replay is not None:
        replay(args.replay, args.seed)
        return
    outcomes, failures = fuzz(args.cases, args.seed)
    print(f"{args.cases} damaged containers, seed {args.seed}: {len(failures)} failures; {dict(outcomes)}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
