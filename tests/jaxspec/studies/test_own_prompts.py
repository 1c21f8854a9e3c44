"""Runs on prompts of a user's own: unequal lengths, a chat template, the model's end tokens; and what is refused at once."""

import json
import shutil

import numpy as np
import pytest

from hwmodels import chain_cycles, read_trace
from jaxspec.errors import InputError
from jaxspec.runs import inputs
from jaxspec.settings import build_config
from jaxspec.speculate import acceptance_rates
from jaxspec.studies import EvaluateConfig, TreeConfig, TuneConfig, evaluate, search_tree, tune
from jaxspec.studies.measured.checking import check_inputs

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}bot: {% endif %}"
)
PROMPTS = (
    {"prompt": "line 7: 49 and 0\nline "},
    {"messages": [{"role": "user", "content": "line 5"}]},
    {"text": "l"},
    {"prompt": "and 4 and"},
)


pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def model(tiny_model, tmp_path_factory):
    """With a chat template."""
    directory = tmp_path_factory.mktemp("models") / "chat"
    shutil.copytree(tiny_model, directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return directory


@pytest.fixture(scope="module")
def settings(model, some_text, small, tmp_path_factory):
    prompts = tmp_path_factory.mktemp("prompts") / "mine.jsonl"
    prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    common = {
        key: value
        for key, value in small.items()
        if key not in ("steps", "uniform_steps", "windows_per_step", "continuation_tokens")
    }
    return common | {"model": str(model), "text": str(some_text), "prompts": str(prompts)}


def run(settings, tmp_path, **more):
    (found,), directory = evaluate(build_config(EvaluateConfig, settings, more), out=str(tmp_path / "run"))
    return found, json.loads((directory.path / "result.json").read_text())[0]


def test_own_prompts_are_decoded_counted_and_predicted(settings, small, tmp_path, monkeypatch):
    _, plain = run(settings, tmp_path / "plain")
    assert plain["decoding"]["prompts"] == 4
    sizes = [len(text) for text in ("line 7: 49 and 0\nline ", "user: line 5\nbot: ", "l", "and 4 and")]
    assert plain["decoding"]["prompt_tokens"] == np.mean(sizes)
    assert plain["decoding"]["stop_tokens"] is None
    assert plain["prompts"] == "mine.jsonl"
    assert {"mine.jsonl", "tokenizer_config.json"} <= set(plain["inputs"])
    assert plain["lossless"]["tokens"] == 4 * small["output_tokens"]
    counts = []
    spy = lambda *given: counts.append(given) or acceptance_rates(*given)
    monkeypatch.setattr("jaxspec.studies.measured.comparison.acceptance_rates", spy)
    found, stopped = run(settings, tmp_path / "stopped", stop=",".join(map(str, range(0, 256, 5))))
    # Drafted tokens that stop a text are no trials of the next.
    ((accepted_at, ended_at, cycles, length),) = counts
    given = stopped["configurations"]["given"]
    counted = (cycles.sum() + accepted_at.sum() - ended_at.sum()) / cycles.sum()
    assert given["tokens_per_cycle_counted"] == pytest.approx(counted, rel=1e-6)
    assert given["draft_length"] == length
    assert ended_at.sum() > 0
    assert stopped["decoding"]["stop_tokens"] == list(range(0, 256, 5))
    assert stopped["lossless"]["tokens"] < plain["lossless"]["tokens"]
    for result in (plain, stopped):
        given = result["configurations"]["given"]
        assert result["lossless"]["mismatches"] == 0
        assert given["tokens_per_cycle_predicted"] == pytest.approx(given["tokens_per_cycle_counted"], rel=1e-6)
    assert found.configurations["given"].tokens_per_cycle_gap_in_standard_errors.known < 1e-3
    # The trace of a run walks the cycles that it counted, of its own draft length and of no other.
    trace = read_trace(tmp_path / "stopped" / "run" / "acceptance_trace.jsonl")
    np.testing.assert_array_equal(chain_cycles(trace, np.array([length]))[:, 0], cycles)
    assert trace.prompt_tokens.tolist() == sizes
    assert trace.drafters == ("given",)


def test_a_tree_on_own_prompts_that_stop(settings, tmp_path):
    more = {"draft": "ngram", "nodes": 4, "depth": 3, "stop": ",".join(map(str, range(0, 256, 5)))}
    (found,), _ = search_tree(build_config(TreeConfig, settings, more), out=str(tmp_path / "tree"))
    assert found.lossless.mismatches.known == 0
    assert 4 <= found.lossless.tokens.known < 4 * settings["output_tokens"]
    assert found.proof.same_cycles.known
    assert np.isfinite([point.tokens_per_cycle.known for point in found.curve]).all()


def test_the_models_own_end_token_ends_prompts_of_a_file(settings, model, tmp_path):
    assert check_inputs(build_config(EvaluateConfig, settings)).stop == ()
    assert "names no token that ends a text" in check_inputs(build_config(EvaluateConfig, settings)).notes[0]
    ends = tmp_path / "ends"
    shutil.copytree(model, ends)
    (ends / "generation_config.json").write_text(json.dumps({"eos_token_id": [10, 32]}))
    settings = settings | {"model": str(ends)}
    cases = {None: (10, 32), "none": (), "eos,46": (10, 32, 46), "a": (97,), "7": (7,)}
    for stop, expected in cases.items():
        assert check_inputs(build_config(EvaluateConfig, settings, {"stop": stop})).stop == expected
    # Prompts that are cut from the text go on to the length that was asked for.
    assert check_inputs(build_config(EvaluateConfig, settings, {"prompts": 3})).stop == ()


def config_of(study, settings, **more):
    return build_config({evaluate: EvaluateConfig, tune: TuneConfig, search_tree: TreeConfig}[study], settings, more)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prompts": "absent.jsonl"}, r"prompts 'absent\.jsonl' is neither a whole number nor a file"),
        ({"prompts": "bad.jsonl"}, "line 2 is no JSON"),
        ({"stop": "eos"}, "stop 'eos' came, and neither"),
        ({"stop": "<|end|>"}, r"stop '<\|end\|>' is no token"),
        ({"stop": "none,3"}, "'none' stands alone"),
        ({"text": "bad.jsonl"}, r"text 'bad\.jsonl', line 2 is no JSON"),
        ({"device": "rtx-409"}, "did you mean"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_digested_or_made(settings, tmp_path, monkeypatch, given, words):
    monkeypatch.setattr(inputs, "input_digests", lambda *_: pytest.fail("inputs were digested"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"text": "good"}\n{"text": \n')
    with pytest.raises(InputError, match=words):
        evaluate(config_of(evaluate, settings, **given), out="run")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]
