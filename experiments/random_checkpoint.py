"""A checkpoint of random weights in the shape of a released network, written layer by layer: `python -m
experiments.random_checkpoint qwen3-0.6b OUT` makes a Hugging Face directory with a byte-level tokenizer, for measurements of
memory and time that no trained weights are needed for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels.networks import running_row
from jaxspec.formats.container import TensorForm
from jaxspec.formats.shard_index import INDEX_FILE
from jaxspec.models.checkpoint_files import STORED_DTYPES
from jaxspec.models.config import decoder_config, family_of
from jaxspec.models.layer_files import LayeredTensors, index_json, plan_shards, write_shard
from jaxspec.partial_files import whole_file, write_text

__all__ = ["SHAPES", "write_checkpoint"]


#: Name -> config.json.
SHAPES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("random_checkpoint.json").read_text(encoding="utf-8")
)


_DTYPES = {"bfloat16": STORED_DTYPES["BF16"], "float16": STORED_DTYPES["F16"]}

#: Rows of a matrix that are drawn at once, in float32.
_ROWS = 4096


def write_checkpoint(raw: dict[str, Any], out: Path, *, seed: int = 0, dtype: str = "bfloat16") -> None:
    """Write config.json, weights and tokenizer.json; one tensor is held at a time.

    Args:
        raw: config.json.
        dtype: bfloat16 or float16.
    """
    config, row = decoder_config(raw), running_row(family_of(raw))
    forms = LayeredTensors(config, row, outside={}, layer=lambda number: {}, dtype=lambda name: _DTYPES[dtype]).forms
    shards, values = plan_shards(forms), (_draw(form, seed, place) for place, form in enumerate(forms))
    out.mkdir(parents=True, exist_ok=True)
    for shard in shards:
        with whole_file(out / shard.name) as part, part.open("wb") as file:
            write_shard(file, shard, values)
    if len(shards) > 1:
        write_text(out / INDEX_FILE, json.dumps(index_json(shards)) + "\n")
    write_text(out / "tokenizer.json", json.dumps(_byte_tokenizer()) + "\n")
    write_text(out / "config.json", json.dumps(raw | {"torch_dtype": dtype}, indent=2) + "\n")


def _draw(form: TensorForm, seed: int, place: int) -> np.ndarray:
    """Gaussian rows of a matrix, of the spread that keeps the size of what it multiplies; vectors near 1."""
    rng = np.random.default_rng([seed, place])
    value = np.empty(form.shape, STORED_DTYPES[form.dtype])
    if value.ndim == 1:
        value[:] = 1 + 0.1 * rng.standard_normal(value.shape, np.float32)
        return value
    scale = np.float32(0.02 if "embed" in form.name else value.shape[-1] ** -0.5)
    for first in range(0, len(value), _ROWS):
        rows = value[first : first + _ROWS]
        rows[:] = scale * rng.standard_normal(rows.shape, np.float32)
    return value


def _byte_tokenizer() -> dict[str, Any]:
    """A tokenizer.json whose tokens are the 256 bytes, in the alphabet of byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letter = {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocabulary = {letter[byte]: byte for byte in range(256)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level, "model": model}


def main() -> None:
    """Write a checkpoint of a known shape, or of any config.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", help=f"{', '.join(SHAPES)}, or a config.json")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=_DTYPES, default="bfloat16")
    args = parser.parse_args()
    raw = SHAPES.get(args.shape) or json.loads(Path(args.shape).read_text(encoding="utf-8"))
    write_checkpoint(raw, args.out, seed=args.seed, dtype=args.dtype)


if __name__ == "__main__":
    main()
