"""How much memory a run needs, by hand, and when its layers stream."""

import pytest

from jaxspec.models import DecoderConfig
from jaxspec.models.embedded import check_model
from jaxspec.studies import CompareConfig, EvaluateConfig, TreeConfig
from jaxspec.studies.compare.entries import check_comparison
from jaxspec.studies.measured.memory import (
    draft_need,
    drafts_of,
    memory_need,
    plan_memory,
)

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


def test_layers_stream_where_they_do_not_fit_or_are_told_to(there):
    plan = lambda **settings: plan_memory(EvaluateConfig(**settings), LLAMA_8B, PROMPTS, gradient_windows=16)
    there(80_000_000_000)
    assert not plan().stream
    assert "there are 80.0 GB" in plan().line
    assert plan(stream=True).stream
    assert "as --stream asks" in plan(stream=True).line
    there(24_000_000_000)
    assert plan().stream
    assert "without that it would take about 41.5 GB" in plan().line
    assert not plan(stream=False).stream
    assert "may not fit" in plan(stream=False).line


def test_a_comparison_holds_all_its_drafts():
    """Those that ship too, where no draft is named: the line of the run counts each of them, by hand."""
    assert drafts_of(EvaluateConfig()) == drafts_of(TreeConfig()) == ("self",)
    held = lambda **settings: check_comparison(CompareConfig(task="none", **settings)).drafts
    assert held(schemes=("cassandra1", "mxint8"), drafts=("q4", "ngram")) == ("self", "self", "q4", "ngram")
    assert held(schemes=("none",), drafts=("q4",)) == ("q4",)
    shipped = held(schemes=("cassandra1",))
    assert {"self", "embedded-small", "embedded-head"} < set(shipped)
    network = check_model("embedded")
    need = lambda drafts: (
        memory_need(CompareConfig(), network, PROMPTS, gradient_windows=0, stream=False, drafts=drafts).network
    )
    own = {name: draft_need(name, network, stream=False).network for name in shipped}
    assert need(shipped) == need(()) + sum(own.values())
    # 6 bytes for each of its weights, as stored and widened.
    assert own["embedded-small"] == 6 * check_model("embedded-small").num_parameters() > 0
