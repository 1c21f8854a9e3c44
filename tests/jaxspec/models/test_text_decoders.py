"""Text decoders inside networks that see as well as read; their logits are among those of test_hf_golden."""

import json
import math
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hwmodels.networks import FAMILIES, family_called
from jaxspec.errors import InputError
from jaxspec.formats.container import open_checkpoint, pack
from jaxspec.models.config import decoder_config, family_of
from jaxspec.models.embedded import check_directory
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_container, load_directory
from jaxspec.models.rope import LinearScaling, Rope
from jaxspec.models.special_tokens import end_tokens

GOLDEN = Path(__file__).parents[2] / "golden" / "hf" / "gemma3_multimodal"

#: What google/gemma-3-4b-it states of its sizes.
RELEASED = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "model_type": "siglip_vision_model"},
}


@pytest.fixture
def copy(tmp_path):
    """The checkpoint of the golden files, to be changed."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, tmp_path)
    return tmp_path


def rename(directory, new_name):
    """Tensors under other names; without those whose name is None."""
    path = directory / "model.safetensors"
    named = {new_name(name): tensor for name, tensor in load_file(path).items()}
    save_file({name: tensor for name, tensor in named.items() if name is not None}, path, metadata={"format": "pt"})


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_release_states_only_what_differs_from_its_familys_defaults():
    config = decoder_config(RELEASED)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.vocab_size) == (8, 4, 256, 262_208)
    # By hand: 262,208 x 2560 embeddings, 34 layers of 94,382,592, and the final norm.
    assert config.num_parameters() == 3_880_263_168
    assert config.windows[:6] == (1024,) * 5 + (None,)
    assert Rope(config.rope_theta, config.rope_scaling) == Rope(1e6, LinearScaling(8.0))
    assert config.local_rope == Rope(1e4)
    assert math.isclose(config.embedding_scale, 2560**0.5)
    assert family_of(RELEASED).name == "gemma3_text"
    untied = decoder_config(RELEASED | {"tie_word_embeddings": False})
    assert config.tie_embeddings
    assert not untied.tie_embeddings


def test_another_name_has_defaults_of_its_own():
    raw = json.loads((GOLDEN.parent / "qwen3_vl_multimodal" / "config.json").read_text())
    stated = raw | {"text_config": {k: v for k, v in raw["text_config"].items() if k != "max_position_embeddings"}}
    longest = lambda settings: {"rope_parameters": settings | {"rope_type": "dynamic", "factor": 2.0}}
    read = lambda **settings: decoder_config(stated | {"text_config": stated["text_config"] | longest(settings)})
    assert read(rope_theta=7e3).rope_theta == 7e3
    assert vars(read(rope_theta=7e3).rope_scaling)["max_position_embeddings"] == 128_000
    with pytest.raises(ValueError, match="rope_theta is None; it must be a finite number"):
        read()  # 10,000 in Qwen3's files, in no version in these
    assert FAMILIES["qwen3"].defaults["rope_theta"] == 10_000.0
    kimi = family_called("kimi_k2")
    assert kimi is not None
    assert kimi.defaults == FAMILIES["deepseek_v3"].defaults


@pytest.mark.parametrize("ours", [True, False])
def test_both_ways_to_name_the_tensors_are_known(copy, ours):
    expected = load_directory(GOLDEN)
    if ours:  # as transformers calls its modules
        rename(copy, lambda name: f"model.{name}".replace("language_model.model.", "language_model."))
        assert check_directory(copy) == expected.config
    else:  # the decoder alone, as a checkpoint of its own
        save_directory(expected.params, expected.config, copy, max_positions=64, family=expected.family)
        assert json.loads((copy / "config.json").read_text())["model_type"] == "gemma3_text"
    found = load_directory(copy)
    assert found.config == expected.config
    same(found.params, expected.params)


def test_a_folder_with_the_other_parts_alone_is_refused(copy):
    rename(copy, lambda name: None if name.startswith("language_model.") else name)
    with pytest.raises(
        InputError, match=r"tensors of other parts of gemma3 alone \('.*the text decoder's begin with lang"
    ):
        load_directory(copy)


@pytest.mark.network
def test_containers_hold_the_whole_and_open_as_the_decoder(tmp_path):
    pack(open_checkpoint(GOLDEN), tmp_path / "packed.jspk", "huffman")
    expected = load_directory(GOLDEN)
    found = load_container(tmp_path / "packed.jspk")
    assert found.config == expected.config
    same(found.params, expected.params)


def test_texts_end_with_the_decoders_own_token_where_nothing_else_is_said(tmp_path):
    write = lambda found: (tmp_path / "config.json").write_text(json.dumps(found))
    write({"text_config": {"eos_token_id": 3}})
    assert end_tokens(tmp_path, vocab_size=9) == (3,)
    write({"eos_token_id": [5, 1], "text_config": {"eos_token_id": 3}})
    assert end_tokens(tmp_path, vocab_size=9) == (1, 5)


@pytest.mark.parametrize("beginning", ["language_model.model.", "model.language_model."])
def test_kimi_k25_holds_a_network_of_deepseek_v3(beginning, tmp_path):
    alone = GOLDEN.parent / "deepseek_v3_grouped"
    text = json.loads((alone / "config.json").read_text()) | {"model_type": "kimi_k2"}
    raw = {"model_type": "kimi_k25", "text_config": text, "vision_config": {"model_type": "kimi_k25_vision"}}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    tower, head = ("", "language_model.") if beginning.startswith("language") else ("model.", "")
    named = {f"{tower}{name}": np.ones(3, np.float32) for name in ("vision_tower.patch_embed.w", "mm_projector.proj.w")}
    for name, tensor in load_file(alone / "model.safetensors").items():
        inner = name.removeprefix("model.")
        named[head + name if inner == name else beginning + inner] = tensor
    save_file(named, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ours, theirs = load_directory(tmp_path), load_directory(alone)
    assert (ours.family.name, ours.config) == ("deepseek_v3", theirs.config)
    same(ours.params, theirs.params)
