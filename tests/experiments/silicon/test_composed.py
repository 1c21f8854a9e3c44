"""Steps of Qwen3-30B-A3B on an H200 beside those added up from measured kernels."""

import builtins
import sys

import jax
import numpy as np
import pytest
from code_blocks import ROOT

from experiments.silicon import composed
from hwmodels import Workload, catalog, decode_operators, step_cost, uniform_footprint
from hwmodels.analysis.calibration.table_routing import touched_in_table
from hwmodels.network.operators.experts import touched_experts


@pytest.fixture(scope="module")
def cells():
    return composed.read_cells()


@pytest.fixture(scope="module")
def errors(cells):
    ours = composed.priced(cells)
    return {part: ours[part] / np.array([cell[part] for cell in cells]) - 1 for part in ("total_s", "experts_s")}


def test_decoding_is_as_long_as_composed(cells, errors):
    decode = np.array([cell["step"] == "decode" for cell in cells])
    assert {(c["batch"], c["tokens"]) for c in cells if c["step"] == "decode"} == {
        (batch, context) for batch in composed.BATCHES for context in composed.CONTEXTS
    }
    for part in errors.values():
        assert np.median(np.abs(part[decode])) < 0.08
        assert np.abs(part[decode]).max() < 0.20
    # A regression far within the bar would go unseen.
    assert np.median(np.abs(errors["total_s"][decode])) < 0.04
    assert np.abs(errors["total_s"][decode]).max() < 0.12


def test_experts_of_a_prefill(cells, errors):
    prefill = np.array([cell["step"] == "prefill" for cell in cells])
    assert np.abs(errors["experts_s"][prefill]).max() < 0.10
    # The whole, attention of the prompt with it: its roofline was up to 18 % too fast.
    assert np.median(np.abs(errors["total_s"][prefill])) < 0.08
    assert np.abs(errors["total_s"][prefill]).max() < 0.14


def test_the_page_has_these_errors(cells, errors):
    page = (ROOT / "docs" / "pages" / "hardware.md").read_text(encoding="utf-8")
    rows = {
        "decoding, batch 1 to 256, context 1k to 32k: whole step": ("decode", "total_s"),
        "its experts": ("decode", "experts_s"),
        "prefill of 128 to 8192 tokens: experts": ("prefill", "experts_s"),
        "whole prefill": ("prefill", "total_s"),
    }
    for row, (step, part) in rows.items():
        sizes = 100 * np.abs(errors[part][[cell["step"] == step for cell in cells]])
        assert f"| {row} | {np.median(sizes):.1f} % | {sizes.max():.1f} % |" in page


def test_the_page_has_what_even_choices_cost(cells, errors):
    words = " ".join((ROOT / "docs" / "pages" / "hardware.md").read_text(encoding="utf-8").split())
    device, network = catalog.device(composed.DEVICE), catalog.architecture(composed.NETWORK)
    workload = Workload(batch=16.0, context_tokens=1024.0)
    even_s = jax.jit(
        lambda: step_cost(device, decode_operators(network, workload, footprint=uniform_footprint(16.0))).total_s
    )()
    (place,) = (n for n, c in enumerate(cells) if (c["step"], c["batch"], c["tokens"]) == ("decode", 16.0, 1024.0))
    as_in_table_s = (1 + errors["total_s"][place]) * cells[place]["total_s"]
    assert f"the step of batch 16 at 1k takes {100 * (float(even_s) / as_in_table_s - 1):.0f} % more" in words
    sizes = int(network.num_experts), int(network.experts_per_token)
    uneven, even = touched_in_table(composed.DISTRIBUTION, 16, *sizes), float(touched_experts(*sizes, 16.0))
    assert f"touch {uneven:.0f} of {sizes[0]} experts, where even choices would touch {even:.0f}" in words


def test_a_table_touches_fewer_experts_than_even_choices():
    sizes = int(catalog.architecture(composed.NETWORK).num_experts), 8
    assert touched_in_table(composed.DISTRIBUTION, 16, *sizes) < 0.75 * float(touched_experts(*sizes, 16.0))


def test_composing_needs_the_package(monkeypatch, capsys):
    def without(name, *arguments, **options):
        if name.startswith("aiconfigurator_core"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return imported(name, *arguments, **options)

    imported, before = builtins.__import__, composed.CELLS.read_bytes()
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(sys, "argv", ["composed", "--write"])
    assert composed.main() == 2
    message = capsys.readouterr().err
    assert "pip install aiconfigurator-core" in message
    assert message.count("\n") == 1
    assert composed.CELLS.read_bytes() == before
