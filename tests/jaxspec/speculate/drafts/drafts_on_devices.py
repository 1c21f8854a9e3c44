"""Child process: drafts of a target on one device, and of the same target split over a mesh of four; prints both as JSON.

Forced host devices have to be there before JAX starts, so that this is a process of its own.
"""

import dataclasses
import json
import sys

import jax
import numpy as np

from jaxspec.models import load_directory
from jaxspec.models.mesh import make_mesh, on_mesh
from jaxspec.models.stored import as_computed
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import make_draft
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.tuning import target_params

#: Made of what a search may have found.
FOUND = {"layer-skip": {"run": np.array([[1, 0], [1, 1]])}}


def run(target, drafts):
    """Tokens and cycles with each draft, and on how many devices its parameters lie."""
    prompts = np.random.default_rng(1).integers(target.config.vocab_size, size=(4, 7)).astype(np.int32)
    result = {}
    for key, name in drafts.items():
        made = make_draft(name, target, FOUND.get(name))
        options = {"num_tokens": 9, "decoding": GREEDY, "seed": 0}
        decoded = decode_chains(as_computed(target.params), target.config, made, Prompts(prompts, **options), 3)
        devices = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(made.params) if leaf.ndim > 1}
        result[key] = {"devices": sorted(devices)} | {x: decoded[x].tolist() for x in ("tokens", "cycles")}
    return result


def main(directory, other, head):
    """Args: directories of the target, of another network, and of a head of the target."""
    drafts = {"network": other, "head": head} | {name: name for name in ("q4", "sparse-kv-25", "layer-skip")}
    whole, split = (load_directory(directory, stream=stream) for stream in (False, "all"))
    placed = on_mesh(target_params(split.params), split.config, make_mesh(2, 2))
    one, four = (
        run(dataclasses.replace(whole, params=params, rounded=True), drafts)
        for params in (target_params(whole.params), placed)
    )
    print(json.dumps({"one": one, "four": four}))


if __name__ == "__main__":
    main(*sys.argv[1:])
