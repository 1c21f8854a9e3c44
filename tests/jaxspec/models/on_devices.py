"""Child process: a network calibrated, measured and decoded on one device and on a mesh of eight; prints both as JSON.

Forced host devices have to be there before JAX starts, so that this is a process of its own.
"""

import json
import sys

import jax
import numpy as np

from jaxspec.compress import hard_draft, uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models import load_directory
from jaxspec.models.mesh import make_mesh, on_mesh
from jaxspec.models.stored import as_computed
from jaxspec.speculate.drafts import self_draft
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.tuning import calibrate, target_params
from jaxspec.tuning.hard import measure_hard


def run(params, config):
    """What a run finds: survival, KL, the draft's bits, tokens and cycles."""
    rng = np.random.default_rng(1)
    texts = rng.integers(config.vocab_size, size=(4, 26)).astype(np.int32)
    prompts = rng.integers(config.vocab_size, size=(4, 7)).astype(np.int32)
    calibration = calibrate(params, config, texts, scheme=CASSANDRA1, first=4)
    knobs = uniform_knobs(CASSANDRA1, config)
    found = measure_hard(calibration, knobs, GREEDY)
    draft = self_draft(config, as_computed(hard_draft(params, calibration.prepared, knobs)), knobs)
    options = {"num_tokens": 9, "decoding": GREEDY, "seed": 0}
    decoded = decode_chains(as_computed(params), config, draft, prompts, 3, **options)
    return {
        "kl": float(found.kl),
        "survival": np.asarray(found.survival).tolist(),
        "bits": [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(found.footprint)],
        **{name: decoded[name].tolist() for name in ("tokens", "cycles", "accepted_at")},
    }


def main(directory):
    """Once whole on one device, once split while it is read."""
    whole, split = (load_directory(directory, stream=stream) for stream in (False, True))
    placed = on_mesh(target_params(split.params), split.config, make_mesh(4, 2))
    devices = {name: len(leaf.array.sharding.device_set) for name, leaf in placed["layers"].items()}
    parts = {name: leaf.array.addressable_shards[0].data.shape for name, leaf in placed["layers"].items()}
    one, other = run(target_params(whole.params), whole.config), run(placed, split.config)
    print(json.dumps({"one": one, "eight": other, "devices": devices, "parts": parts}))


if __name__ == "__main__":
    main(sys.argv[1])
