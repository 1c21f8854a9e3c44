"""Settings of `jaxspec compare`: lists of names, tuned runs, what is left out."""

import json

import pytest

from jaxspec.errors import InputError
from jaxspec.settings import build_config
from jaxspec.settings.base import layered_config
from jaxspec.studies import CompareConfig, TreeConfig
from jaxspec.studies.compare.entries import check_comparison


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schemes": "cassandra1,none"}, "stands alone"),
        ({"schemes": "cassandra3"}, "schemes has 'cassandra3', which is unknown; did you mean 'cassandra"),
        ({"schemes": "huffman"}, "which is unknown"),
        ({"drafts": "self"}, "self-drafts are named by their schemes"),
        ({"drafts": "nowhere"}, "draft 'nowhere' is unknown"),
        ({"lossy": "cassandra2"}, "lossy has 'cassandra2'"),
        ({"scheme": "q4_0"}, "compare stores its targets as schemes and lossy say"),
        ({"schemes": "any-precision", "weight_prune": 0.3}, "no scheme that is compared has such a knob"),
    ],
)
def test_bad_lists_give_one_line(given, said):
    with pytest.raises(InputError) as caught:
        build_config(CompareConfig, given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_shipped_drafts_that_do_not_fit_are_left_out_and_named_ones_refused(tiny_model, small, some_text):
    common = {name: small[name] for name in ("prompts", "prompt_tokens", "output_tokens", "calibration_prompts")}
    base = common | {"model": str(tiny_model), "text": str(some_text), "lossy": "none"}
    found = check_comparison(build_config(CompareConfig, base))
    names = [entry.name for entry in found.entries]
    assert names[:4] == ["cassandra1", "cassandra2", "mxint8", "any-precision"]
    assert {"ngram", "q4", "layer-skip", "sparse-kv-25"} < set(names)
    assert not set(found.left_out) & set(names)
    assert "embedded-head" in found.left_out
    with pytest.raises(InputError, match=r"has \w+ .*; the target has .*: use the target that it belongs to"):
        check_comparison(build_config(CompareConfig, base | {"drafts": "embedded-head"}))
    # Knobs reach the schemes that have them alone.
    given = check_comparison(build_config(CompareConfig, base | {"slice_bits": 3, "weight_prune": 0.1}))
    own = {entry.name: entry.config for entry in given.entries}
    assert (own["any-precision"].slice_bits, own["cassandra2"].weight_prune, own["ngram"].weight_prune) == (3, 0.1, 0.4)
    assert own["ngram"].nodes == own["ngram"].depth == 8


def test_a_quick_run_answers_problems_only_of_a_task_that_is_named():
    assert layered_config(CompareConfig, {}, quick=True).task == "none"
    named = layered_config(CompareConfig, {"task": "python"}, quick=True)
    assert (named.task, named.problems) == ("python", 24)
    # Less text than other studies take, and as much as anybody asks for.
    assert (named.prompts, named.calibration_prompts, named.output_tokens) == (16, 16, 32)
    assert layered_config(CompareConfig, {"prompts": 24}, quick=True).prompts == 24
    assert layered_config(TreeConfig, {}, quick=True).prompts == 24
    with pytest.raises(InputError, match="problems would have no effect: the task is none"):
        layered_config(CompareConfig, {"problems": 48}, quick=True)


def test_a_tuned_run_brings_its_scheme_and_knobs(tiny_model, small, some_text, tmp_path):
    common = {name: small[name] for name in ("prompts", "prompt_tokens", "output_tokens", "calibration_prompts")}
    base = common | {
        "model": str(tiny_model),
        "text": str(some_text),
        "lossy": "none",
        "schemes": "none",
        "drafts": "none",
    }
    with pytest.raises(InputError, match="there is nothing to compare"):
        check_comparison(build_config(CompareConfig, base))
    knobs = {"weight_prune": 0.25, "weight_cut_bits": 3, "kv_prune": 0.0, "kv_cut_bits": 2, "draft_length": 3}
    result = [{"scheme": "cassandra2", "configurations": {"tuned": {"knobs": knobs}}}]
    (tmp_path / "result.json").write_text(json.dumps(result))
    (entry,) = check_comparison(build_config(CompareConfig, base | {"tuned": str(tmp_path)})).entries
    assert (entry.name, entry.config.scheme) == ("tuned cassandra2", "cassandra2")
    assert float(entry.knobs.values["weight_prune"].mean()) == 0.25
    again = tmp_path / "again"
    again.mkdir()
    (again / "result.json").write_text(json.dumps(result))
    both = check_comparison(build_config(CompareConfig, base | {"tuned": f"{tmp_path},{again}"})).entries
    assert [entry.name for entry in both] == [f"tuned cassandra2 of {run}" for run in (tmp_path, again)]
    # A run that is given twice is compared once.
    (entry,) = check_comparison(build_config(CompareConfig, base | {"tuned": f"{again},{again}"})).entries
    assert entry.name == "tuned cassandra2"
    refused = (
        ("[]", "is no result of jaxspec tune"),
        ("[" * 100_000, "is no result of jaxspec tune"),
        ('[{"scheme": null}]', "is no result of jaxspec tune"),
        ('[{"scheme": "cassandra1", "configurations": {"given": {}}}]', "has no tuned draft"),
        ('[{"scheme": "q4_0", "configurations": {"tuned": {}}}]', "which has no draft"),
    )
    for text, said in refused:
        (tmp_path / "result.json").write_text(text)
        with pytest.raises(InputError, match=said):
            check_comparison(build_config(CompareConfig, base | {"tuned": str(tmp_path)}))
    with pytest.raises(InputError, match="has no result"):
        check_comparison(build_config(CompareConfig, base | {"tuned": str(tmp_path / "nowhere")}))
