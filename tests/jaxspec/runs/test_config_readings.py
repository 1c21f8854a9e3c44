"""The two readers of config.json agree: the one of networks that run here, and the one of networks that are priced."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels import catalog
from jaxspec.models.architecture import architecture_of
from jaxspec.models.families import decoder_config

GOLDEN = Path(__file__).parents[2] / "golden" / "hf"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/config.json")), ids=lambda path: path.parent.name)
def test_both_readers_agree_on_the_golden_networks(path):
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert catalog.architecture_from_config_file(path) == architecture_of(decoder_config(raw))
    # Layers that predict further tokens are left out by both, and only the catalog speaks of them.
    further = bool(raw.get("num_nextn_predict_layers"))
    assert sum("further tokens" in note for note in catalog.read_config(raw).notes) == further


@given(
    model_type=st.sampled_from(["llama", "qwen3"]),
    sizes=st.tuples(*[st.integers(1, 9)] * 5),
    head_dim=st.none() | st.integers(1, 9).map(lambda half: 2 * half),
    tied=st.booleans(),
)
def test_both_readers_agree_on_any_network_that_runs(model_type, sizes, head_dim, tied):
    layers, groups, kv_heads, width, vocab = sizes
    heads = groups * kv_heads
    raw = {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": 2 * width * heads,
        "intermediate_size": width + 11,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
    }
    expected = architecture_of(decoder_config(raw))
    assert catalog.architecture_from_config(raw) == expected
    # The same file without what both take from the family.
    del raw["tie_word_embeddings"], raw["head_dim"]
    assert catalog.architecture_from_config(raw) == architecture_of(decoder_config(raw))
