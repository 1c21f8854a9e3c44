"""Directories of small networks, as tests write and edit them."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.rope import Llama3Scaling

LLAMA = DecoderConfig(
    vocab_size=11,
    hidden_size=12,
    intermediate_size=10,
    num_layers=3,
    num_heads=3,
    num_kv_heads=1,
    head_dim=6,
    rope_theta=3000.0,
    rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 128),
    norm_eps=3e-6,
)
QWEN3_TIED = dataclasses.replace(LLAMA, qk_norm=True, tie_embeddings=True, rope_scaling=None, num_heads=2)


def same_bits(a, b):
    return jax.tree.map(lambda x, y: x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes(), a, b)


def bfloat16_params(config, seed=0):
    # From NumPy: `init_params` compiles a generator for every shape.
    rng = np.random.default_rng(seed)
    draw = lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape).astype(ml_dtypes.bfloat16))
    return jax.tree.map(draw, abstract_params(config))


def edit_config(directory, **changes):
    path = directory / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in raw.items() if value != "absent"}))


def edit_tensors(directory, edit):
    tensors = load_file(directory / "model.safetensors")
    edit(tensors)
    save_file(tensors, directory / "model.safetensors")


def shard(directory):
    """Split model.safetensors in two, with an index; returns the weight map."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    names = sorted(tensors)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in files.items():
        save_file({name: tensors[name] for name in part}, directory / file)
    weight_map = {name: file for file, part in files.items() for name in part}
    write_index(directory, weight_map)
    return weight_map


def write_index(directory, weight_map):
    content = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(content))
