"""How much memory a run needs, by hand, and when its layers stream."""

import pytest

from jaxspec.models import DecoderConfig
from jaxspec.models.streamed import is_streamed
from jaxspec.studies import EvaluateConfig
from jaxspec.studies.measured.checking import check_inputs
from jaxspec.studies.measured.memory import memory_need, plan_memory
from jaxspec.studies.measured.setup import make_setup

LLAMA_8B = DecoderConfig(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
)
PROMPTS = [100, 128]


@pytest.fixture
def there(monkeypatch):
    """Sets what the device has."""
    return lambda count: monkeypatch.setattr("jaxspec.studies.measured.memory.device_memory_bytes", lambda: count)


def test_network_and_calibration_text_by_hand():
    need = memory_need(EvaluateConfig(), LLAMA_8B, PROMPTS, gradient_windows=0, stream=False)
    # 8.03 billion parameters, of which 6.98 billion are in matrices that the draft has again; 2 bytes each.
    assert need.network == pytest.approx(2 * (8.03e9 + 6.98e9), rel=1e-3)
    # 96 windows of 128 + 73 tokens: 2 x 8 x 128 values of KV in each of 32 layers, 2 bytes; 4096 hidden values, 4 bytes.
    assert need.calibration == 96 * 201 * (32 * 2 * 2 * 1024 + 4 * 4096)
    assert need.total == sum(need)
    streamed = memory_need(EvaluateConfig(), LLAMA_8B, PROMPTS, gradient_windows=0, stream=True)
    # The head, and a layer of 218 million as stored and as computed with.
    assert streamed.network == pytest.approx(2 * 128256 * 4096 + 6 * 218e6, rel=1e-2)
    assert streamed.calibration == 96 * 201 * (2 * 2 * 1024 + 4 * 4096)


def test_more_of_anything_needs_more():
    need = lambda prompts=PROMPTS, windows=0, **settings: memory_need(
        EvaluateConfig(**settings), LLAMA_8B, prompts, gradient_windows=windows, stream=False
    )
    assert need(calibration_prompts=97).total > need().total
    assert need(windows=64).total > need(windows=32).total > need().calibration
    assert need(prompts=[4000] * 24).total > need(prompts=[2000] * 24).total


def test_layers_stream_where_they_do_not_fit_or_are_told_to(there):
    plan = lambda **settings: plan_memory(EvaluateConfig(**settings), LLAMA_8B, PROMPTS, gradient_windows=16)
    there(80_000_000_000)
    assert not plan().stream
    assert "there are 80.0 GB" in plan().line
    assert plan(stream=True).stream
    assert "as --stream asks" in plan(stream=True).line
    there(24_000_000_000)
    assert plan().stream
    assert "without that it would take about 40" in plan().line
    assert not plan(stream=False).stream
    assert "may not fit" in plan(stream=False).line


def test_a_run_is_set_up_either_way(tiny_model, some_text):
    config = EvaluateConfig(model=str(tiny_model), text=str(some_text), prompts=2, prompt_tokens=8, output_tokens=4)
    checked = check_inputs(config)
    assert [is_streamed(make_setup(config, checked, stream=stream).stored) for stream in (False, True)] == [False, True]
