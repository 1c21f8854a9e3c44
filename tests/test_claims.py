"""Results that the README and the first page repeat are those of the recorded runs and of the pages that hold them."""

import json
import re

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
