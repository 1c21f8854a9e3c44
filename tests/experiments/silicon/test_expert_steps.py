"""Whole steps of mixtures on one GPU beside those added up from measured kernels."""

import numpy as np
import pytest

from experiments.silicon import expert_steps


@pytest.fixture(scope="module")
def cells():
    return expert_steps.read_cells()


def errors(cells, part="total_s"):
    return expert_steps.priced(cells)[part] / np.array([getattr(cell, part) for cell in cells]) - 1


def chosen(cells, network, gpu, engine, phase):
    return [c for c in cells if (c.network, c.gpu, c.engine, c.phase) == (network, gpu, engine, phase)]


@pytest.mark.device_matrix("gpt-oss-20b-h100-sxm-trtllm")
@pytest.mark.parametrize(
    ("network", "gpu", "engine"),
    [
        ("qwen3-30b-a3b", "h200-sxm", "trtllm"),
        ("qwen3-30b-a3b", "b200-sxm", "sglang"),
        ("gpt-oss-20b", "h200-sxm", "vllm"),
        ("gpt-oss-20b", "h100-sxm", "trtllm"),
    ],
)
def test_steps_keep_to_the_targets(cells, network, gpu, engine):
    error = errors(chosen(cells, network, gpu, engine, "decode"))
    # The targets are 8 and 20 %; a regression far within them would go unseen.
    assert np.abs(error).mean() < 0.055
    assert np.abs(error).max() < 0.18
    if (network, engine) != ("gpt-oss-20b", "trtllm"):
        prefill = errors(chosen(cells, network, gpu, engine, "prefill"))
        assert np.abs(prefill).mean() < expert_steps.BAR
        assert np.abs(prefill).max() < expert_steps.LARGEST


@pytest.mark.device_matrix
def test_a_row_by_hand(cells):
    few = chosen(cells, "gpt-oss-20b", "l40s", "vllm", "decode")[:12]
    beyond = np.array([expert_steps.beyond_cache(cell) for cell in few])
    error, experts = errors(few), errors(few, "experts_s")
    assert 0 < beyond.sum() < len(few)
    row = [cell.strip(" *") for cell in expert_steps.page_section(few).splitlines()[-1].strip("|").split("|")]
    percent = lambda values: f"{100 * values:.1f} %"
    assert row[5:7] == [percent(np.abs(error).mean()), percent(np.abs(error).max())]
    assert row[9:12] == [
        str(beyond.sum()),
        percent(np.abs(error[beyond]).mean()),
        percent(np.abs(error[beyond]).max()),
    ]
    assert row[12] == percent(np.abs(experts).mean())
