"""Results that the README and the first page repeat are those of the recorded runs and of the pages that hold them."""

import json
import re

import pytest
from code_blocks import ROOT

RESIDUALS = ROOT / "docs" / "residuals"


def words(path):
    return " ".join(path.read_text(encoding="utf-8").replace("**", "").split())


README = words(ROOT / "README.md")


def test_the_readme_has_the_recorded_errors_of_speedups():
    """A number alone, so that a sentence may change; the page of evidence has all of them, generated."""
    recorded = json.loads((RESIDUALS / "field.json").read_text(encoding="utf-8"))["sources"]
    for source, numbers in {"vllm-scripts": ("median", "p90", "largest"), "MTPLX": ("median",)}.items():
        kinds = [kind["speedup"] for name, kind in recorded.items() if source in name]
        assert kinds
        for number in (f"{100 * kind[name]:.1f}" for kind in kinds for name in numbers):
            assert re.search(rf"(?<![\d.]){re.escape(number)} (%|and)", README), (source, number)
    heads = max(kind["speedup"]["largest"] for name, kind in recorded.items() if "vllm-project/vllm" in name)
    assert f"largest error {100 * heads:.1f} %" in README


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


def test_errors_of_compression_figures():
    huffllm = json.loads((RESIDUALS / "huffllm.json").read_text(encoding="utf-8"))
    found = huffllm["summary"]["huffllm/compression_ratios"]["relative_error"]["predicted"]
    assert f"Huff-LLM's {found['cells']} compression figures within {100 * found['max']:.1f} %" in README
    assert len(list(RESIDUALS.glob("*.json"))) - len({"field", "gpu_steps", "host"}) == 5
    assert "Tables of five papers" in README
