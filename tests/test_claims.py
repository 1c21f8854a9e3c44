"""Results that the README and the first page repeat are those of the recorded runs and of the pages that hold them."""

import json
import re

import pytest
from code_blocks import ROOT

RESIDUALS = ROOT / "docs" / "residuals"
FIELD = json.loads((RESIDUALS / "field.json").read_text(encoding="utf-8"))["classes"]


def words(path):
    return " ".join(path.read_text(encoding="utf-8").replace("**", "").split())


README = words(ROOT / "README.md")


def test_the_readme_has_the_recorded_errors_of_speedups():
    """Numbers alone, so that a sentence may change; the page of evidence has all of them, generated."""
    for name in ("GPUs of data centers", "several GPUs", "all but data centers"):
        errors = FIELD[name]["speedup"]
        assert f": {errors['rows']} rows" in README
        for key in ("median", "p90", "largest"):
            assert re.search(rf"(?<![\d.]){100 * errors[key]:.1f} %", README), (name, key)


def test_claims_of_the_tuned_draft_are_those_of_its_row():
    tuned = re.search(r"\| tuned, every matrix its own \|.*?\| (\S+) / (\S+ ± \S+) \| (\S+)x \|", README)
    best = re.search(r"\| best point of the uniform grid \|.*? ± \S+ \| (\S+)x \|", README)
    gain = re.search(
        r"is (\S+) times as fast as the best point of the grid \(95 % interval over prompts: (\S+) to (\S+)\)", README
    )
    assert tuned
    assert best
    assert gain
    assert f"| {tuned[1]} predicted, {tuned[2]} counted while decoding | measured |" in README
    ratio = float(tuned[3]) / float(best[1])
    assert float(gain[1]) == pytest.approx(ratio, abs=0.005 + 0.01 / float(best[1]))
    assert float(gain[2]) < float(gain[1]) < float(gain[3])
