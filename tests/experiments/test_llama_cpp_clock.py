"""llama.cpp's clock beside a prediction, with servers whose times are known."""

import json
from types import SimpleNamespace

import pytest

from experiments import llama_cpp_clock
from jaxspec.errors import InputError

#: Milliseconds of a step of the target, one of the draft, and a verification; cycles of 24 tokens, alone and with the draft.
STEP, DRAFT, VERIFY, TOKENS, LENGTH, CYCLES = 10.0, 4.0, 15.0, 24, 3, 8


def fake_server(target, draft, draft_length, threads):
    step = STEP if target.name == "target.gguf" else DRAFT
    cycles = TOKENS if draft is None else TOKENS // (LENGTH + 1) if draft == target else CYCLES
    drafting = 0.0 if draft is None else LENGTH * (STEP if draft == target else DRAFT)
    took = cycles * (step if draft is None else drafting + VERIFY)
    timings = {"predicted_n": TOKENS, "predicted_ms": took, "draft_n_accepted": TOKENS - cycles}
    return SimpleNamespace(handle_completions=lambda asked: {"timings": timings})


def test_parts_add_up_to_the_cycle_that_is_timed(tmp_path, monkeypatch):
    exported = {"target": "embedded", "draft_length": LENGTH, "alone": {"tokens_per_cycle": 3.3}}
    (tmp_path / "jaxspec_export.json").write_text(json.dumps(exported))
    monkeypatch.setattr(llama_cpp_clock, "server", fake_server)
    result = llama_cpp_clock.compare(tmp_path, prompts=2, tokens=TOKENS, threads=1)
    assert result["verification_s"] == pytest.approx(VERIFY / 1e3)
    assert result["cycle_s_predicted"] == pytest.approx(result["cycle_s_measured"])
    assert result["tokens_per_cycle_counted"] == TOKENS / CYCLES
    assert result["tokens_per_s_predicted"] == pytest.approx(3.3 / 3.0 * result["tokens_per_s_measured"])


def test_a_folder_that_is_no_export(tmp_path):
    with pytest.raises(InputError, match="make one with jaxspec export MODEL"):
        llama_cpp_clock.compare(tmp_path, prompts=1, tokens=4, threads=1)
