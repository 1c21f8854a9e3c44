"""Accuracy of an instruct network in lossy forms, on the embedded network with a chat template."""

import json
import shutil

import numpy as np
import pytest

from experiments.instruct_accuracy import Measuring, Settings, measure, with_earlier
from experiments.papers.mobile_npu.accuracy import FLOAT, Text, Variant
from jaxspec.errors import InputError
from jaxspec.models.embedded import load_model, model_place
from jaxspec.runs import Reporter
from jaxspec.runs.stages import Stages

TEMPLATE = "{% for m in messages %}ask: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}bot: {% endif %}"
SETTINGS = Settings(per_category=3, longest=60, calibrating=2, calibration_tokens=24, problems=4, tokens=6)
VARIANTS = (FLOAT, Variant("q4_0"), Variant("q4_0", fp16_attention=True), Variant("wanda-50"))


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "chat"
    shutil.copytree(model_place("embedded-small"), directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return directory


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    rows = [
        {"category": kind, "turns": [f"{i} What is {kind} number {i}?"]} for kind in ("qa", "rag") for i in range(6)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_only_what_prompts_do_not_share_is_counted():
    prompts = [np.frombuffer(text, np.uint8).astype(np.int32) for text in (b"ask: one\nbot: ", b"ask: seven\nbot: ")]
    text = Text.of_prompts(prompts, load_model("embedded-small"))
    counted = [bytes(row[1:][of].astype(np.uint8)) for row, of in zip(text.rows, text.counted, strict=True)]
    assert counted == [b"one", b"seven"]
    assert text.num_bytes.tolist() == [3, 5]


@pytest.mark.study
def test_every_variant_has_its_text_and_its_task_and_a_second_run_reads_them(chat, asked, tmp_path):
    kept = []
    run = lambda: Measuring(str(chat), asked, SETTINGS, Stages(tmp_path / "run"), Reporter())
    found = measure(run(), VARIANTS, kept.append)
    assert [len(each["variants"]) for each in kept] == [1, 2, 3, 4, 4, 4, 4, 4]
    assert [row["variant"] for row in found["variants"]] == ["float", "q4_0", "q4_0 + fp16 attention", "wanda-50"]
    assert (found["questions"], found["counted_bytes"]) == (6, found["counted_tokens"])
    exact, groups, half, pruned = found["variants"]
    assert exact["agreement"]["value"] == 1.0
    # Half of the weights, and a bit for the place of each.
    assert [row["bits_per_weight"] for row in found["variants"]] == [16.0, 4.5, 4.5, pytest.approx(9.0, rel=1e-3)]
    assert exact["bits_per_byte"]["value"] < pruned["bits_per_byte"]["value"]
    assert half["bits_per_byte"]["value"] == pytest.approx(groups["bits_per_byte"]["value"], rel=1e-3)
    # The network ends no answer, having no token for it, so that none is right.
    assert {(row["arithmetic_greedy"]["value"], row["arithmetic_finished"]) for row in found["variants"]} == {
        (0.0, 0.0)
    }
    pairs = [(row["variant"], row["beside"]) for row in found["comparisons"]]
    assert pairs == [("q4_0", "float"), ("wanda-50", "float")]
    again = run()
    again.loaded.params.clear()  # stages are read, no network is made
    assert again.read(VARIANTS[3]).bits.sum() / found["counted_bytes"] == pytest.approx(
        pruned["bits_per_byte"]["value"]
    )
    assert again.written("q4_0").shape == (4, 6)


@pytest.mark.study
def test_answers_with_float16_attention_are_those_that_it_would_write(chat, asked, tmp_path):
    measuring = Measuring(str(chat), asked, SETTINGS, Stages(tmp_path / "run"), Reporter())
    written = measuring.written("")
    kept = measuring._kept(FLOAT, written, lambda: None)
    assert kept.all()  # greedy answers are the likeliest tokens, place by place
    written[1, 0] = (written[1, 0] + 1) % 256
    assert measuring._kept(FLOAT, written, lambda: None).tolist() == [True, False, True, True]


def test_what_was_measured_earlier_stays_beside_what_is_new():
    earlier = {
        "variants": [{"variant": "float", "bits": 1.0, "task": 0.5}, {"variant": "q4_0", "bits": 1.2, "task": 0.1}],
        "comparisons": [{"variant": "q4_0", "beside": "float", "bits": 0.2}],
    }
    new = {
        "questions": 2,
        "variants": [{"variant": "float", "bits": 1.0}, {"variant": "wanda-50", "bits": 1.4}],
        "comparisons": [{"variant": "wanda-50", "beside": "float", "bits": 0.4}],
    }
    both = with_earlier(new, earlier)
    assert both["questions"] == 2
    assert both["variants"] == [*earlier["variants"], new["variants"][1]]
    assert both["comparisons"] == [*earlier["comparisons"], *new["comparisons"]]
    assert with_earlier(new, {}) == new


def test_a_network_without_a_template_is_refused(asked, tmp_path):
    with pytest.raises(InputError, match="asks through a chat template, and model 'embedded-small' has none"):
        Measuring("embedded-small", asked, SETTINGS, Stages(tmp_path / "run"), Reporter())
