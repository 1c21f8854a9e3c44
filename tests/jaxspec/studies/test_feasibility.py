"""What is refused and what is noted: blocks that devices cut, long texts, memory, drafts that are never accepted."""

import dataclasses
import json

import pytest

import jaxspec as js
from hwmodels import catalog
from jaxspec.errors import InputError
from jaxspec.studies import PredictConfig
from jaxspec.studies.feasibility import capacity_bytes, check_blocks, memory_notes, priced_pair, weight_block

BLOCK = (128, 128)


def blocks(name, block=BLOCK, **parallelism):
    check_blocks(name, catalog.architecture(name), block, catalog.Parallelism(**parallelism))


def test_only_blocks_are_cut():
    assert weight_block(PredictConfig(weight_format="fp8_block")) == BLOCK
    assert weight_block(PredictConfig(weight_format="fp8")) is weight_block(PredictConfig()) is None
    blocks("qwen3-30b-a3b", None, tensor=4)
    blocks("qwen3-30b-a3b", tensor=2)
    blocks("qwen3-30b-a3b", tensor=4, expert=4)
    blocks("qwen3-30b-a3b", tensor=8, expert=4)  # two devices share an expert: 384 columns
    blocks("qwen3-30b-a3b", (64, 64), tensor=4)
    blocks("deepseek-v3", tensor=8)


@pytest.mark.parametrize(
    ("name", "block", "parallelism", "says"),
    [
        ("qwen3-30b-a3b", BLOCK, {"tensor": 4}, "768 columns of an expert / 4: the output_size of gate's and up's weight = 1"),
        ("qwen3-235b-a22b", BLOCK, {"tensor": 8}, "= 192 is not divisible by weight quantization block_n = 128"),
        ("qwen3-235b-a22b", (64, 256), {"tensor": 4}, "the input_size of down's weight = 384 .* block_k = 256"),
        ("deepseek-v3", BLOCK, {"tensor": 32, "expert": 32}, "18,432 inner columns / 32: output_partition_size = 576 is not"),
        ("qwen2.5-72b", BLOCK, {"tensor": 2}, "29,568 inner columns / 2: output_partition_size = 14784 is not"),
        ("llama-3.2-1b", BLOCK, {"tensor": 8}, "512 columns of keys / 8: output_partition_size = 64 is not divisible"),
    ],
)  # fmt: skip
def test_devices_that_cut_blocks_are_refused(name, block, parallelism, says):
    with pytest.raises(InputError, match=says) as caught:
        blocks(name, block, **parallelism)
    assert str(caught.value).startswith(f"{name} is stored in blocks of {block[0]} x {block[1]}")


def test_a_network_by_its_files_is_compared_by_them(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    llama = catalog.architecture("llama-3.1-8b")
    (note,) = priced_pair(str(tmp_path), llama, "llama-3.1-8b", llama)
    assert "was not compared" in note
    other = dataclasses.replace(llama, vocab_size=128_000.0)
    for name in (tmp_path, tmp_path / "config.json"):
        with pytest.raises(InputError, match=r"put its tokenizer\.json beside each config\.json"):
            priced_pair(str(name), other, "llama-3.1-8b", llama)
    document = {"model": {"vocab": {"a": 0, "b": 1}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert len(priced_pair(str(tmp_path), other, str(tmp_path / "config.json"), llama)) == 1  # padding alone


def test_one_rule_says_what_does_not_fit():
    device = catalog.device("h100-sxm")
    assert capacity_bytes(device) == 80e9
    assert memory_notes(device, {"batch 1": 80e9}) == ()
    (note,) = memory_notes(device, {"batch 1": 70e9, "batch 8": 90e9, "batch 64": 200e9})
    assert note.startswith(
        "does not fit: weights and KV take 200 GB on a device, batch 64 (and 1 more), and it has 80 GB"
    )
    (note,) = memory_notes(device, {"batch 4096": 2300e9})
    assert "take 2,300 GB" in note  # not 2.3e+03
    hybrid = catalog.device("elmoe3d-hb8")
    assert capacity_bytes(hybrid) > float(hybrid.memory.capacity_bytes)
    (note,) = [
        note for note in js.predict(architecture="llama-3.1-70b", device="h100-sxm").notes if "does not fit" in note
    ]
    assert "batch 1 at 1,024 cached tokens" in note
