"""Intervals in results: which errors they hold, that they survive result.json, how they are shown; an engine's terms."""

import dataclasses

import numpy as np
import pytest

from hwmodels import NO_ENGINE, DraftCost, catalog, eagle_head
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes
from hwmodels.speculation import EAGLE3_VOCABULARY
from jaxspec.errors import InputError
from jaxspec.settings import CommonConfig
from jaxspec.studies.engine_pricing import engine_notes, engine_scatter, engine_terms, engine_used, kind_of_draft
from jaxspec.studies.headline_intervals import headline_intervals
from jaxspec.studies.measured.pricing import resolve_pricing

TIMES = CycleTimes(
    part_s=np.array([[3e-3, 1e-3], [4e-3, 1.2e-3]], np.float32),
    deviation=np.zeros((2, 2), np.float32),
    bf16=np.array([1.0, 0.0], np.float32),
    stored=np.array([1.0, 0.0], np.float32),
    cycle=np.array([0.0, 1.0], np.float32),
)
DEVICE = catalog.device("rtx-4090")


def test_nothing_is_said_where_nothing_is_known_to_err():
    assert headline_intervals(TIMES, [0.8], [0.0], batch=1.0) is None
    assert headline_intervals(TIMES, [0.8], [float("nan")], batch=1.0) is None  # one prompt has no standard error


def test_terms_come_with_the_engine_that_has_them():
    assert resolve_pricing(
        CommonConfig(device=("h100-sxm",), engine="vllm"), "h100-sxm", None
    ).engine == catalog.engine("vllm")
    assert resolve_pricing(CommonConfig(), "h100-sxm", None).engine == NO_ENGINE == engine_terms("trtllm")
    assert engine_used(None) is None
    assert engine_notes(None) == []
    assert engine_used("trtllm").terms == {}
    assert "not known (no source: " in engine_notes("trtllm")[0]
    assert engine_used("trtllm").sources["cycle_s"].startswith("no source: ")
    # What was set to 0 was not fitted.
    statuses = [engine_used("vllm").terms[name].status for name in ("launched_cycle_s", "draft_pass_s")]
    assert statuses == ["calibrated", "input"]
    assert {term.status for term in engine_used("jax").terms.values()} == {"input"}
    cycle_ms, layer_ms = (1e3 * engine_used("vllm").terms[name].value for name in ("launched_cycle_s", "draft_layer_s"))
    (said,) = engine_notes("vllm")
    assert f"{cycle_ms:.3g} ms (of a lookup " in said
    assert f"{layer_ms:.3g} ms for each layer of the draft" in said
    with pytest.raises(InputError, match="did you mean 'vllm'"):
        resolve_pricing(CommonConfig(engine="vlm"), "h100-sxm", None)


def test_scatter_is_that_of_the_kind_of_draft():
    small = DraftCost(architecture=catalog.architecture("qwen3-0.6b"))
    # An EAGLE-3 head has a small LM head of its own, and is no network for that.
    eagle3 = eagle_head(catalog.architecture("llama-3.1-8b"), EAGLE3_VOCABULARY)
    kinds = [kind_of_draft(cost) for cost in (small, dataclasses.replace(small, shares_ends=1.0), DraftCost(), eagle3)]
    assert kinds == ["small network", "other drafts", "other drafts", "other drafts"]
    scatter = catalog.engine_scatter("vllm")
    assert len(set(scatter.values())) == 4
    measured = catalog.device("h100-sxm")
    assert [engine_scatter("vllm", kind, device=measured) for kind in kinds[:2]] == [
        scatter[kind] for kind in kinds[:2]
    ]
    # Wider where kernels were not measured, whatever the draft.
    unmeasured = {engine_scatter("vllm", kind, device=DEVICE) for kind in kinds}
    assert unmeasured == {scatter["unmeasured kernels"]}
    assert min(unmeasured) > max(scatter[kind] for kind in kinds)
    assert engine_scatter("trtllm", device=DEVICE) == engine_scatter(None, device=DEVICE) == 0.0
