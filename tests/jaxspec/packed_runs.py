"""A container packed with the knobs and norms of a tuning run, made without one, and the draft that such a run has."""

import json

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.compress.knobs import knobs_to_json, write_norms
from jaxspec.compress.weights import hard_draft, target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.hf_export import save_directory
from jaxspec.models.stored import as_stored
from jaxspec.studies.pack.config import PackConfig
from jaxspec.studies.pack.run import pack_checkpoint
from jaxspec.tuning.calibration import calibrate

#: A network whose rows end within a byte and within a block.
CONFIG = DecoderConfig(
    vocab_size=256, hidden_size=24, intermediate_size=38, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)


def pack_run(folder, network, config, knobs):
    """Makes model/, result.json, its norms and model.jspk in a folder; the hard draft of these knobs.

    Args:
        network: float32 parameters, which are stored in bfloat16.
    """
    scheme, network = knobs.scheme, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), network)
    save_directory(network, config, folder / "model", max_positions=64)
    target = target_network(scheme, as_stored(network))
    tokens = np.random.default_rng(1).integers(config.vocab_size, size=(3, 20)).astype(np.int32)
    prepared = calibrate(target, config, tokens, scheme=scheme, first=4).prepared
    tuned = {"configurations": {"tuned": {"knobs": knobs_to_json(knobs, config.matrix_kinds)}}}
    (folder / "result.json").write_text(json.dumps([tuned]))
    if scheme.facts.prunes:
        write_norms(folder, jax.device_get(prepared))
    settings = PackConfig(model=str(folder / "model"), scheme=scheme.name, knobs=str(folder / "result.json"))
    pack_checkpoint(settings, folder / "model.jspk")
    return hard_draft(target, prepared, knobs, config)


def patterns(x):
    """Bit patterns of bfloat16 values."""
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16)).view(np.uint16)
