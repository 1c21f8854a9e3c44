"""Child process: a network calibrated, measured and decoded on one device and on a mesh of eight; prints both as JSON.

Forced host devices have to be there before JAX starts, so that this is a process of its own.
"""

import json
import math
import re
import sys
from unittest.mock import patch

import jax
import numpy as np
from elastic_networks import mixture, uneven_network
from jax.sharding import NamedSharding, PartitionSpec

from jaxspec.compress import hard_draft, uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models import load_directory
from jaxspec.models.mesh import by_row, make_mesh, on_mesh
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate import chain_limits, decode_autoregressively
from jaxspec.speculate.acceptance import agreement
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import self_draft
from jaxspec.speculate.engine import decode
from jaxspec.speculate.loop import Request
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.speculate.steps import top_gap
from jaxspec.studies.compare.stages import channel_norms
from jaxspec.tuning import calibrate, target_params
from jaxspec.tuning.compression_objective import measure_hard, measured_windows

MIXTURE = mixture(40)


def run(params, config):
    """What a run finds: survival, KL, the draft's bits, tokens and cycles."""
    rng = np.random.default_rng(1)
    texts = rng.integers(config.vocab_size, size=(4, 26)).astype(np.int32)
    prompts = rng.integers(config.vocab_size, size=(2, 7)).astype(np.int32)
    calibration = calibrate(params, config, texts, scheme=CASSANDRA1, first=4)
    knobs = uniform_knobs(CASSANDRA1, config)
    found = measure_hard(calibration, knobs, GREEDY)
    draft = self_draft(config, as_computed(hard_draft(params, calibration.prepared, knobs)), knobs)
    options = {"num_tokens": 9, "decoding": GREEDY, "seed": 0}
    rows = []

    def decode_of(target, params, request, *given, **static):
        prompts = request.prompts
        rows.append((prompts.sharding.shard_shape(prompts.shape)[0], len(prompts)))
        return decode(target, params, request, *given, **static)

    with patch("jaxspec.speculate.proof.decode", decode_of):
        decoded = decode_chains(as_computed(params), config, draft, Prompts(prompts, **options), 3)
    return {
        "rows": rows,
        "norms": {name: x.tolist() for name, x in channel_norms(params, config, texts[:3], lambda: None).items()},
        "kl": float(found.kl),
        "survival": np.asarray(found.survival).tolist(),
        "bits": [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(found.footprint)],
        **{name: decoded[name].tolist() for name in ("tokens", "cycles", "accepted_at")},
    }


def in_parts(params, config):
    """The same draft on seven windows, of which one pass may take four: a part of four and one of three."""
    texts = np.random.default_rng(4).integers(config.vocab_size, size=(7, 26)).astype(np.int32)
    calibration = calibrate(params, config, texts, scheme=CASSANDRA1, first=4)
    tokens = calibration.text.tokens.shape[1]
    bytes_of_four = 4 * 4 * tokens * config.num_heads * tokens
    rows = []

    def pass_of(*given):
        rows.append(len(given[2]))
        return measured_windows(*given)

    with (
        patch("jaxspec.tuning.calibration._PASS_BYTES", bytes_of_four),
        patch("jaxspec.tuning.compression_objective.measured_windows", pass_of),
    ):
        found = measure_hard(calibration, uniform_knobs(CASSANDRA1, config), GREEDY)
    measured = [found.survival, found.kl, found.cross_entropy, *jax.tree.leaves(found.footprint)]
    # Windows that the first device has of the KV and the hidden states, of all that are there.
    text = [
        (leaf.addressable_shards[0].data.shape[axis], leaf.shape[axis])
        for leaf, axis in ((calibration.kv.rows, 2), (calibration.text.hidden, 0))
    ]
    norms = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(calibration.prepared)]
    found = {"rows": rows, "measured": [np.asarray(leaf).tolist() for leaf in measured], "norms": norms}
    return found | {"windows": calibration.num_windows, "text": text}


def logits_at_once():
    """Most logits of a network that each of three devices along data makes at once, of six texts with five places each.

    Pieces have room for twelve places: two of each text.
    """
    mesh, rng = make_mesh(3, 1), np.random.default_rng(7)
    hidden = rng.standard_normal((6, 5, 4)).astype(np.float32)
    head, tokens = rng.standard_normal((40, 4)).astype(np.float32), rng.integers(40, size=(6, 5)).astype(np.int32)
    logits_of = (lambda x: x @ head.T, lambda x: -x @ head.T)

    def found(hidden, tokens):
        return agreement(hidden, hidden[:, ::-1], tokens, logits_of, vocab_size=40, decoding=GREEDY)

    given = [jax.device_put(x, by_row(mesh, 6)) for x in (hidden, tokens)]
    with patch("jaxspec.speculate.acceptance._LOGITS", 12 * 40):
        program = jax.jit(found).lower(*given).compile()
    shapes = (tuple(map(int, shape.split(","))) for shape in re.findall(r"f32\[([\d,]+)\]", program.as_text()))
    whole = jax.jit(found)(hidden, tokens)  # on one device, and in one piece
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), program(*given), whole)
    return max(math.prod(shape) for shape in shapes if shape[-1] == 40) // 40


def gap_on_shards():
    """Shapes that a program holds for the gap between the two largest of each of three rows of logits, split in two."""
    logits = np.random.default_rng(8).standard_normal((3, 1 << 14)).astype(np.float32)
    split = jax.device_put(logits, NamedSharding(make_mesh(1, 2), PartitionSpec(None, "tensor")))
    program = jax.jit(top_gap).lower(split).compile()
    np.testing.assert_array_equal(program(split), jax.jit(top_gap)(logits))
    return sorted(set(re.findall(r"f32\[([\d,]+)\]", program.as_text())))


def decoded_mixture(params):
    """Tokens of a mixture of experts."""
    prompts = np.random.default_rng(2).integers(MIXTURE.vocab_size, size=(4, 5)).astype(np.int32)
    options = {"draft": None, "limits": chain_limits(1), "config": MIXTURE}
    request = Request(prompts, np.arange(4), jax.random.key(0), 9)
    found = decode_autoregressively(params, None, request, GREEDY, **options)
    return np.asarray(found.tokens).tolist()


def parts_of(params):
    """Shape of what the first device has of each parameter of the layers."""
    return {name: leaf.array.addressable_shards[0].data.shape for name, leaf in params["layers"].items()}


def first_bytes(tree):
    """Bytes that the first device has of all arrays."""
    first = jax.devices()[0]
    shards = (shard for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards)
    return sum(shard.data.nbytes for shard in shards if shard.device == first)


def main(directory):
    """Once whole on one device, once split while it is read; a mixture once whole, once split."""
    whole, split = (load_directory(directory, stream=stream) for stream in (False, "all"))
    placed = on_mesh(target_params(split.params), split.config, make_mesh(4, 2))
    devices = {name: len(leaf.array.sharding.device_set) for name, leaf in placed["layers"].items()}
    one, other = run(target_params(whole.params), whole.config), run(placed, split.config)
    of_three = on_mesh(target_params(split.params), split.config, make_mesh(3, 2))
    parts = {
        "one": in_parts(target_params(whole.params), whole.config),
        "six": in_parts(of_three, split.config),
    }
    mixture = as_stored(uneven_network(MIXTURE, 5, sharpness=3.0))
    placed_mixture = on_mesh(mixture, MIXTURE, make_mesh(4, 2))
    texts = {"one": decoded_mixture(mixture), "eight": decoded_mixture(placed_mixture)}
    shapes, shapes_of_mixture = parts_of(placed), parts_of(placed_mixture)
    held = {
        tensor: first_bytes(on_mesh(target_params(split.params), split.config, make_mesh(1, tensor)))
        for tensor in (2, 4)
    }
    found = {
        "logits": logits_at_once(),
        "gap": gap_on_shards(),
        "one": one,
        "eight": other,
        "devices": devices,
        "parts": shapes,
        "held": held,
    }
    print(json.dumps(found | {"measured_in_parts": parts, "mixture": texts | {"parts": shapes_of_mixture}}))


if __name__ == "__main__":
    main(sys.argv[1])
