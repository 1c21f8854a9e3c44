"""Weights written layer by layer: shards of a bounded size that safetensors reads, and no value that does not fit."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from hwmodels.networks import running_row
from jaxspec.models.config import DecoderConfig
from jaxspec.models.hf_export import family_for
from jaxspec.models.layer_files import LayeredTensors, plan_shards, write_shard

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=6, intermediate_size=10, num_layers=3, num_heads=3, num_kv_heads=1, head_dim=4
)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def layered(random_network, dtype=BFLOAT16, **changes):
    params = random_network(CONFIG, 4) | changes
    asked = []

    def layer(number):
        asked.append(number)
        return {name: leaf[number] for name, leaf in params["layers"].items()}

    row = running_row(family_for(CONFIG))
    tensors = LayeredTensors(CONFIG, row, outside=params, layer=layer, dtype=lambda name: dtype)
    return tensors, params, asked


@pytest.mark.network
def test_a_file_is_what_safetensors_reads(random_network, tmp_path):
    tensors, params, asked = layered(random_network)
    (shard,) = plan_shards(tensors.forms)
    told = []
    with (tmp_path / shard.name).open("wb") as file:
        write_shard(file, shard, tensors.values(), on_bytes=lambda count, name: told.append(count))
    assert asked == [0, 1, 2]
    found = load_file(tmp_path / shard.name)
    assert sum(told) == sum(tensor.nbytes for tensor in found.values())
    np.testing.assert_array_equal(
        found["model.layers.2.mlp.up_proj.weight"], params["layers"]["up"][2].astype(BFLOAT16)
    )
    np.testing.assert_array_equal(found["lm_head.weight"], params["lm_head"].astype(BFLOAT16))
    content = (tmp_path / shard.name).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length])["__metadata__"] == {"format": "pt"}
