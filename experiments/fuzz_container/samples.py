"""Small containers of every scheme, and what they hold: where each case begins."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import ml_dtypes
import numpy as np

from jaxspec.formats.container import CODECS, Container, Selection, TensorForm, open_checkpoint, pack
from jaxspec.formats.container import field_codec as field_codec_module
from jaxspec.formats.container import tensors as tensors_module

#: Elements of a chunk in the samples with many chunks.
_SHORT_CHUNK = 700


class Sample(NamedTuple):
    """A container that is whole.

    Attributes:
        content: its bytes.
        target, draft: SHA-256 of every tensor's patterns by name.
        files: what unpacking gives, by name; None for a scheme that is not lossless.
    """

    name: str
    content: bytes
    target: dict[str, str]
    draft: dict[str, str]
    files: dict[str, bytes] | None


class _ByMagnitude:
    """Keeps the larger 0.6 of each row of the matrices, without 4 of their bits."""

    def selection(self, form: TensorForm) -> Selection | None:
        """None for everything but matrices."""
        return Selection(round(0.6 * form.columns), 4) if len(form.shape) == 2 else None

    def keep(self, form: TensorForm, rows: np.ndarray, kept_per_row: int) -> np.ndarray:
        """By the patterns without their sign."""
        order = np.argsort(-(rows.astype(np.int32) & 0x7FFF), axis=1, kind="stable")
        mask = np.zeros(rows.shape, bool)
        np.put_along_axis(mask, order[:, :kept_per_row], True, axis=1)
        return mask


def _write(path: Path, tensors: dict[str, tuple[str, np.ndarray]]) -> None:
    header, place = {}, 0
    for name, (dtype, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [place, place + values.nbytes]}
        place += values.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(v.tobytes() for _, v in tensors.values()))


def _checkpoint(folder: Path, rng: np.random.Generator) -> None:
    """Two shards: dtypes with and without fields, matrices, vectors, a scalar, nothing."""
    weights = lambda shape, dtype: (0.02 * rng.standard_normal(shape)).astype(dtype)
    _write(
        folder / "one.safetensors",
        {
            "matrix": ("BF16", weights((20, 61), ml_dtypes.bfloat16)),
            "half": ("F16", weights((20, 61), np.float16)),
            "norm": ("BF16", weights((61,), ml_dtypes.bfloat16)),
            "scalar": ("F64", np.array(1.5)),
        },
    )
    _write(
        folder / "two.safetensors",
        {
            "vector": ("BF16", weights((1220,), ml_dtypes.bfloat16)),
            "rounded": ("F32", weights((1220,), ml_dtypes.bfloat16).astype(np.float32)),
            "narrow": ("F8_E4M3", rng.standard_normal(1220).astype(ml_dtypes.float8_e4m3fn)),
            "nothing": ("BF16", np.zeros((0, 5), np.uint16)),
            "counts": ("I32", rng.integers(1000, size=(3, 7), dtype=np.int32)),
        },
    )
    (folder / "config.json").write_text('{"model_type": "none"}')


def digests(container: Container) -> tuple[dict[str, str], dict[str, str]]:
    """SHA-256 of every tensor as target and as draft."""
    sha256 = lambda name, part: hashlib.sha256(container.read(name, part).tobytes()).hexdigest()
    target = {name: sha256(name, "target") for name in container.tensors}
    return target, {name: sha256(name, "draft") for name in container.tensors}


def build_samples(seed: int = 0) -> list[Sample]:
    """One container of each scheme, and of four schemes one with several chunks per tensor."""
    rng = np.random.default_rng(seed)
    samples = []
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        source.mkdir()
        _checkpoint(source, rng)
        files = {path.name: path.read_bytes() for path in source.iterdir()}
        named = [(name, name, tensors_module.CHUNK_ELEMENTS) for name in CODECS]
        named += [
            (f"{name} in chunks", name, _SHORT_CHUNK) for name in ("huffman", "cassandra1", "any-precision", "raw")
        ]
        for name, scheme_name, chunk in named:
            path = Path(scratch) / "a.jspk"
            with (
                mock.patch.object(tensors_module, "CHUNK_ELEMENTS", chunk),
                mock.patch.object(field_codec_module, "CHUNK_ELEMENTS", chunk),
            ):
                pack(open_checkpoint(source), path, scheme_name, split=_ByMagnitude())
            with Container(path) as container:
                target, draft = digests(container)
                lossless = container.lossless
            samples.append(Sample(name, path.read_bytes(), target, draft, files if lossless else None))
    return samples
