"""What no engine serves is refused by every command in one line, from Python as from the shell, and nothing is left."""

import dataclasses
import json

import pytest
from forked_processes import ForkedProcesses

import jaxspec as js
from jaxspec.errors import InputError
from jaxspec.models import DecoderConfig, save_directory

TARGET = DecoderConfig(40, 16, 24, 1, 2, 1, 8)
DRAFT = dataclasses.replace(TARGET, hidden_size=8, vocab_size=38)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    found = ForkedProcesses(tmp_path_factory.mktemp("streams"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory, random_network):
    """A target, a draft of the same words, one of other words, one without a tokenizer; a text and a sweep."""
    folder = tmp_path_factory.mktemp("infeasible")
    words = [f"w{i}" for i in range(37)]
    for name, shape, own in (
        ("target", TARGET, words),
        ("padded", DRAFT, words),
        ("other", TARGET, words[::-1]),
        ("silent", DRAFT, None),
    ):
        save_directory(random_network(shape, 1), shape, folder / name, max_positions=64)
        if own is not None:
            vocab = {"unk_token": "w0", "type": "WordLevel", "vocab": {word: i for i, word in enumerate(own)}}
            document = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": vocab}
            (folder / name / "tokenizer.json").write_text(json.dumps(document))
    (folder / "text.txt").write_text(" ".join(words[i * i % 37] for i in range(4000)))
    (folder / "sweep.toml").write_text('tensor_parallel = 16\ndevice = ["h100-sxm"]\n[axes]\n"workload.batch" = [1]\n')
    return folder


#: A sample of problems or texts that are quickly read.
FEW = {"prompts": 2, "prompt_tokens": 8, "output_tokens": 4}
MEASURED = FEW | {"text": "text.txt", "model": "target"}


def refused_alike(processes, place, command, settings, *, file=None, monkeypatch):
    """The line of a refusal, which is the same from Python and from the shell, where nothing is written."""
    before = sorted(place.rglob("*"))
    flags = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    ended = processes.run([command, *([] if file is None else [file]), *flags], place)
    assert (ended.code, ended.out) == (2, ""), ended.err
    monkeypatch.chdir(place)
    with pytest.raises(InputError) as caught:
        getattr(js, command)(*([] if file is None else [file]), **settings)
    (line,) = ended.err.splitlines()[-1:]
    assert line == f"jaxspec: {caught.value}"
    assert sorted(place.rglob("*")) == before
    return str(caught.value)


def test_a_priced_draft_of_another_vocabulary(processes, place, monkeypatch):
    pair = {"architecture": "llama-3.1-8b", "device": "h100-sxm", "acceptance": 0.8}
    drafts = {"advise": {"draft": "qwen2.5-0.5b"}, "serve": {"draft_architecture": "qwen2.5-0.5b"}}
    lines = {
        refused_alike(processes, place, command, pair | draft, monkeypatch=monkeypatch)
        for command, draft in drafts.items()
    }
    (line,) = lines
    assert "draft 'qwen2.5-0.5b' has a vocabulary of 151,936" in line
    assert "target 'llama-3.1-8b' has a vocabulary of 128,256" in line


@pytest.mark.parametrize(
    ("draft", "says"), [("other", "differ); a draft needs the target's"), ("silent", "put its tok")]
)
def test_a_measured_draft_of_other_tokens(draft, says, processes, place, monkeypatch):
    names = {"tree": "draft", "compare": "drafts", "scale": "draft"}
    lines = set()
    for command, flag in names.items():
        settings = {"model": "target", flag: draft}
        settings |= {"task": "arithmetic", "prompts": 2} if command == "scale" else MEASURED
        lines.add(refused_alike(processes, place, command, settings, monkeypatch=monkeypatch))
    (line,) = lines
    assert f"draft '{draft}'" in line
    assert says in line


def commands(settings):
    """Every command that prices with its own flags."""
    priced = {"predict": {}, "serve": {}, "advise": {"draft": "ngram", "acceptance": 0.5}}
    ran = dict.fromkeys(("evaluate", "tune", "tree", "compare"), MEASURED)
    ran["scale"] = {"model": "target", "task": "arithmetic", "prompts": 2}
    return {name: own | settings for name, own in (priced | ran).items()}


def test_devices_that_a_link_does_not_join(processes, place, monkeypatch):
    settings = {"architecture": "qwen3-32b", "device": "h100-sxm", "tensor_parallel": 16}
    lines = {
        refused_alike(processes, place, command, own, monkeypatch=monkeypatch)
        for command, own in commands(settings).items()
    }
    lines.add(refused_alike(processes, place, "sweep", {}, file="sweep.toml", monkeypatch=monkeypatch))
    (line,) = lines
    assert line.startswith("tensor_parallel is 16, and nvlink4 joins 8 devices (NVLink 4 behind NVSwitch, 8 GPUs): the")
    assert "infiniband-ndr" in line


def test_blocks_of_weights_that_devices_cut(processes, place, monkeypatch):
    settings = {"architecture": "qwen3-30b-a3b", "device": "h100-sxm", "tensor_parallel": 4}
    settings |= {"weight_format": "fp8_block"}
    lines = {
        refused_alike(processes, place, command, own, monkeypatch=monkeypatch)
        for command, own in commands(settings).items()
    }
    (line,) = lines
    assert (
        "the output_size of gate's and up's weight = 192 is not divisible by weight quantization block_n = 128" in line
    )
    assert "or expert_parallel, which keeps experts whole" in line


@pytest.mark.study
def test_a_table_of_positions_that_ends(processes, place, monkeypatch):
    settings = {"architecture": "opt-2.7b", "device": "rtx-4090"}
    lines = set()
    for command, own in commands(settings).items():
        text = {"prompt_tokens": 3999, "output_tokens": 1, "prompt_variation": 0.0, "output_variation": 0.0}
        own = own | (text if command == "serve" else {"context": 3999})
        lines.add(refused_alike(processes, place, command, own, monkeypatch=monkeypatch))
    (line,) = lines
    assert line.startswith(
        "architecture 'opt-2.7b' has a table of 2,050 positions, and a text of 4,000 tokens is to be"
    )
