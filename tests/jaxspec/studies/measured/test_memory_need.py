"""How much memory a run needs, by hand, and when its layers stream."""

import dataclasses

import pytest

from jaxspec.models import DecoderConfig
from jaxspec.models.embedded import check_model
from jaxspec.models.streamed import is_streamed
from jaxspec.runs import Reporter
from jaxspec.settings.draft_kinds import draft_names
from jaxspec.speculate.proof import WIDTH
from jaxspec.studies import CompareConfig, EvaluateConfig, TreeConfig
from jaxspec.studies.compare.entries import check_comparison
from jaxspec.studies.compare.run import compare
from jaxspec.studies.measured.checking import check_inputs
from jaxspec.studies.measured.memory import (
    ROOM_BYTES,
    draft_need,
    drafts_of,
    laid_out_anew,
    memory_need,
    pass_bytes,
    plan_memory,
)
from jaxspec.studies.measured.work import make_setup

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
    assert "without that it would take about 39.8 GB" in plan().line
    assert not plan(stream=False).stream
    assert "may not fit" in plan(stream=False).line


def test_each_device_of_a_mesh_by_hand():
    need = lambda mesh, windows=0, prompts=PROMPTS: memory_need(
        EvaluateConfig(), LLAMA_8B, prompts, gradient_windows=windows, stream=False, mesh=mesh
    )
    whole, split = need((1, 1)), need((4, 2))
    # 65 norms of 4096 values are whole; the other parameters, and the draft's matrices, are halved.
    norms = 2 * 65 * 4096
    assert split.network == (whole.network - norms) // 2 + norms
    # 24 windows, of whose KV each device has its heads, and of whose hidden states its channels.
    assert split.calibration == 24 * 201 * (32 * 2 * 2 * 1024 + 4 * 4096) // 2
    # 5 devices do not divide 96 windows or two prompts: four more windows fill places, so that each has 20, and three prompts,
    # so that each has one. No room for programs is shared.
    assert need((5, 1)).calibration == whole.calibration * 20 // 96
    one, all_of_them = (need((data, 1), prompts=[4000] * 2).work - ROOM_BYTES for data in (5, 1))
    assert one == all_of_them // 2
    assert pass_bytes(LLAMA_8B, 96, 201, gradient=False, mesh=(5, 1)) == pass_bytes(LLAMA_8B, 20, 201, gradient=False)
    assert (
        need((2, 1), prompts=[4000] * 2).work - ROOM_BYTES == (need((1, 1), prompts=[4000] * 2).work - ROOM_BYTES) // 2
    )
    # With tensor=2 each device has its heads of KV and of scores; logits of both prompts are whole. Matrices that are split by
    # rows, and are read in pieces of rows, are copied twice to be split by channels, the head once.
    logits = 2 * 3 * 4 * WIDTH * 128256
    of_heads = lambda mesh: need(mesh, prompts=[4000] * 2).work - ROOM_BYTES - logits
    rows = 4096 + 2 * 1024 + 2 * 14336
    anew = 2 * 2 * 32 * 4096 * rows // 2 + 2 * 128256 * 4096 // 2
    assert of_heads((1, 2)) - anew + ROOM_BYTES == of_heads((1, 1)) // 2
    # 16 devices have no whole KV heads: attention is whole, of the target and the draft.
    attention = 2 * 2 * 32 * 4096 * (2 * 4096 + 2 * 1024)
    assert need((1, 16)).network == (whole.network - norms - attention) // 16 + norms + attention
    for mesh in ((8, 1), (1, 8)):
        assert need(mesh, windows=16).work < need((1, 1), windows=16).work


def test_passes_on_each_device_by_hand():
    need = lambda mesh, windows=64, network=LLAMA_8B, **options: pass_bytes(
        network, windows, 200, mesh=mesh, **{"gradient": False} | options
    )
    # 12800 tokens in float32: three hidden states, two feed-forward states, queries and what is read, scores of 32 heads;
    # with two matrices of the draft.
    hidden, inner, heads, matrices = 3 * 4096, 2 * 14336, 2 * 4096 + 32 * 200, 2 * 14336 * 4096
    assert need((1, 1)) == 4 * (12800 * (hidden + inner + heads) + matrices)
    # There and back, and what enters each of 32 layers.
    assert need((1, 1), gradient=True) == 4 * (12800 * (2 * (hidden + inner + heads) + 32 * 4096) + 2 * matrices)
    assert need((4, 1)) == 4 * (3200 * (hidden + inner + heads) + matrices)
    # With tensor=4 all are split; the head is gathered for target and draft, as many of its channels as of hidden states.
    head = 2 * 2 * 128256 * 4096
    assert need((1, 4)) == (need((1, 1)) + head) // 4
    # 16 devices do not divide 8 KV heads.
    assert need((1, 16)) == 4 * (12800 * ((hidden + inner) // 16 + heads) + matrices // 16) + head // 16
    # Where the embedding is the head, hidden states are whole, and the whole head is gathered.
    tied = dataclasses.replace(LLAMA_8B, tie_embeddings=True)
    assert need((1, 4), network=tied) == 4 * (12800 * (hidden + (inner + heads) // 4) + matrices // 4) + head
    # Logits take some room however small a pass is, and no more than this where it is large.
    assert need((1, 1), windows=1) == need((8, 1), windows=8) == ROOM_BYTES


def test_a_device_that_multiplies_what_is_stored_gathers_no_head(monkeypatch):
    need = lambda: pass_bytes(LLAMA_8B, 16, 200, gradient=False, mesh=(1, 8))
    pieces = need()
    tied = dataclasses.replace(LLAMA_8B, tie_embeddings=True)
    rows = 4096 + 2 * 1024 + 2 * 14336
    assert laid_out_anew(tied, 8) == 2 * 32 * 4096 * rows + 2 * 128256 * 4096  # whole on each
    assert laid_out_anew(LLAMA_8B, 1) == 0
    monkeypatch.setattr("jaxspec.studies.measured.memory.is_widened", lambda rows, matrix: False)
    assert pieces - need() == 2 * 2 * 128256 * 4096 // 8
    assert laid_out_anew(LLAMA_8B, 8) == 0


def test_the_line_tells_what_each_device_needs(there, monkeypatch):
    there(26_000_000_000)
    monkeypatch.setattr("jax.device_count", lambda: 8)
    plan = plan_memory(EvaluateConfig(), LLAMA_8B, PROMPTS, gradient_windows=0)
    assert plan.mesh == (4, 2)
    need = memory_need(EvaluateConfig(), LLAMA_8B, PROMPTS, gradient_windows=0, stream=False, mesh=(4, 2))
    assert f"about {need.total / 1e9:.1f} GB" in plan.line
    assert "on each of 8 devices (data=4,tensor=2)" in plan.line


def test_a_run_is_set_up_either_way(tiny_model, some_text):
    config = EvaluateConfig(model=str(tiny_model), text=str(some_text), prompts=2, prompt_tokens=8, output_tokens=4)
    checked = check_inputs(config)
    assert [is_streamed(make_setup(config, checked, stream=stream).stored) for stream in (False, True)] == [False, True]


@pytest.fixture
def draft(tmp_path, monkeypatch):
    """A network of 256 tokens, whose 116 million parameters are mostly in 8 layers."""
    config = DecoderConfig(
        vocab_size=256,
        hidden_size=1024,
        intermediate_size=3840,
        num_layers=8,
        num_heads=16,
        num_kv_heads=4,
        head_dim=64,
    )
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.setattr("jaxspec.studies.measured.memory.check_model", lambda name: config)
    return str(tmp_path)


def test_a_draft_network_is_counted_whether_layers_stream_or_not(draft):
    network = check_model("embedded")
    need = lambda stream, name: memory_need(
        TreeConfig(draft=name, calibration_prompts=1), network, [600] * 24, gradient_windows=0, stream=stream
    )
    # By hand: matrices of 1024 x (1024 + 256 + 256 + 1024 + 3 x 3840) in 8 layers; two of 256 x 1024 outside; 17 norms.
    parameters = 8 * 1024 * (2560 + 11520) + 2 * 256 * 1024 + 17 * 1024
    for stream in (False, True):
        assert need(stream, draft).network - need(stream, "ngram").network == 2 * parameters
        # 24 prompts of 600 tokens, and what follows them: more than the KV of so many tokens alone.
        assert need(stream, draft).work > need(stream, "ngram").work + 24 * 600 * 8 * 512 * 4


def test_other_drafts_by_hand():
    drafted = lambda name, stream=False: draft_need(name, LLAMA_8B, stream=stream).network
    matrices = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336)
    assert drafted("self") == 2 * matrices
    # What is read back of 4 bits is held in 32, or made where it is used.
    assert drafted("q4") == 4 * matrices
    assert drafted("q4", stream=True) == drafted("self", stream=True) == 0
    assert drafted("ngram") == drafted("sparse-kv-25") == drafted("layer-skip") == 0
    small = check_model("embedded-small").num_parameters()
    assert drafted("embedded-small") == 6 * small  # as stored, and widened
    # Both ends of the target in float32, and one layer.
    assert drafted("embedded-head") == pytest.approx(4 * (2 * 128256 * 4096 + matrices / 32))


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


def test_the_line_of_a_comparison_counts_the_drafts_that_ship(monkeypatch, tmp_path):
    told = []
    monkeypatch.setattr("jaxspec.studies.measured.memory.bytes_in_words", lambda count: f"{count:.0f} bytes")
    monkeypatch.setattr(Reporter, "line", lambda self, text: told.append(text))
    monkeypatch.setattr("jaxspec.studies.measured.work.make_setup", lambda *given, **named: pytest.fail("stop here"))
    with pytest.raises(pytest.fail.Exception, match="stop here"):
        compare(CompareConfig(schemes=("none",), task="none"), out=str(tmp_path / "run"))
    (line,) = (text for text in told if text.startswith("memory: "))
    network = check_model("embedded")
    shipped = sum(draft_need(name, network, stream=False).network for name in draft_names() if name != "self")
    bare = memory_need(CompareConfig(), network, PROMPTS, gradient_windows=0, stream=False, drafts=()).network
    assert f"({bare + shipped} bytes of it the network" in line
    assert shipped > bare / 2


def test_streamed_runs_that_do_not_fit_are_told(there):
    plan = lambda **settings: plan_memory(EvaluateConfig(**settings), LLAMA_8B, PROMPTS, gradient_windows=0)
    there(1_000_000_000)
    for stream in (None, True):
        assert plan(stream=stream).stream
        assert "That may not fit: give fewer" in plan(stream=stream).line
    there(24_000_000_000)
    assert "may not fit" not in plan(stream=True).line
