"""Fig. 6 and Fig. 7 measured on the embedded network: `python -m experiments.papers.cassandra.measuring`.

Writes data/measured.json, which the reproduction reads: minutes of processor time that no test spends.

Fig. 7's drafts are Cassandra-1's, of weights alone: the KV cache is the target's own. Compression is 16 bits over the bits per
weight that a draft step reads, exponents unary-coded and bitmap included. Acceptance is the accepted fraction of 5 drafted
tokens, greedy, of hard drafts on held-out text that the target continued itself.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxspec.compress.footprint import mean_draft_bits
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import stored_kv, token_rows
from jaxspec.compress.schemes import find_scheme
from jaxspec.files import to_json, write_text
from jaxspec.formats.entropy import counted_entropy_bits
from jaxspec.formats.patterns import BFLOAT16, to_bits
from jaxspec.models.decoder import forward_text
from jaxspec.models.embedded import load_model
from jaxspec.models.stored import as_computed, stack_of
from jaxspec.speculate.proof import continue_texts
from jaxspec.speculate.sampling import GREEDY
from jaxspec.text import load_text, windows
from jaxspec.tuning.calibration import calibrate, target_params
from jaxspec.tuning.hard import measure_hard

__all__ = ["LENGTH", "MEASURED", "POINTS", "main"]

MEASURED = Path(__file__).parent / "data" / "measured.json"

#: Windows of text, tokens of a prompt and of its continuation.
_WINDOWS, _PROMPT, _CONTINUED = 64, 48, 96

#: Drafted tokens: Fig. 7.
LENGTH = 5

#: What is varied: pruned share and cut bits, by the paper's abbreviations.
POINTS = {
    "VP": [(prune / 100, 0) for prune in (20, 30, 40, 50, 55, 60, 65, 70, 75, 80)],
    "MT": [(0.0, cut) for cut in range(1, 8)],
    "VP+MT": list(itertools.product((0.2, 0.3, 0.4, 0.5, 0.6), (3, 4, 5, 6))),
}


def _exponents(patterns: Any) -> dict[str, float]:
    """Entropy and mean unary length of exponents, one codebook for all of a tensor."""
    fields = (np.asarray(patterns).reshape(-1) >> BFLOAT16.mantissa_bits) & 0xFF
    counts = np.sort(np.bincount(fields, minlength=256))[::-1]
    unary = float(counts @ np.arange(1, counts.size + 1)) / counts.sum()
    return {"entropy_bits": float(counted_entropy_bits(counts)), "unary_bits": unary, "values": int(counts.sum())}


def _mean(found: list[dict[str, float]]) -> dict[str, float]:
    total = sum(each["values"] for each in found)
    names = ("entropy_bits", "unary_bits")
    return {name: sum(each[name] * each["values"] for each in found) / total for name in names} | {"values": total}


def main() -> None:
    """Measure and write."""
    loaded, scheme = load_model("embedded"), find_scheme("cassandra1")
    config, stored = loaded.config, target_params(loaded.params)
    text = load_text("stdlib", loaded.tokenizer)
    prompts = windows(text.held_out, _WINDOWS, _PROMPT, 0, document_starts=text.held_out_starts)
    decoded = continue_texts(as_computed(stored), config, prompts, num_tokens=_CONTINUED, decoding=GREEDY, seed=0)
    tokens = jnp.asarray(decoded["tokens"][:, : _PROMPT + _CONTINUED])
    cache = forward_text(
        as_computed(stored), config, tokens, kv_codec=stored_kv(config), logits_from=tokens.shape[1]
    ).cache
    layers = [type(cache)(cache.key[i], cache.value[i]) for i in range(config.num_layers)]
    matrices = [stack_of(stored["layers"][kind]).values() for kind in config.matrix_kinds]
    result: dict[str, Any] = {
        "model": "embedded",
        "fig6": {
            "weights": _mean([_exponents(to_bits(jnp.asarray(x))) for stack in matrices for x in stack]),
            "kv_cache": _mean(
                [_exponents(to_bits(rows.astype(jnp.bfloat16))) for layer in layers for rows in token_rows(layer)]
            ),
        },
        "fig7": {},
    }
    calibration = calibrate(stored, config, tokens, scheme=scheme, first=_PROMPT - 1)
    for name, points in POINTS.items():
        rows = []
        for prune, cut in points:
            knobs = uniform_knobs(
                scheme, config, weight_prune=prune, weight_cut_bits=cut, kv_prune=0.0, kv_cut_bits=0.0
            )
            found = measure_hard(calibration, knobs, GREEDY)
            bits, alpha = float(mean_draft_bits(found.footprint)), float(jnp.mean(found.survival[:LENGTH]))
            rows.append({"weight_prune": prune, "cut_bits": cut, "bits_per_weight": bits, "alpha_fraction": alpha})
            print(name, json.dumps(rows[-1]), flush=True)
        result["fig7"][name] = rows
    write_text(MEASURED, to_json(result))


if __name__ == "__main__":
    main()
