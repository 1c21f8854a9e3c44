"""A network in a GGUF file: its tensors under the names and with the rows of a Hugging Face checkpoint, in 16 bits.

Matrices in blocks of few bits are read as codes and scales, or as the bfloat16 values nearest to what their blocks stand for;
16-bit ones bit for bit, except that float16 is rounded to bfloat16 in a file that has matrices of other types too, since layers
are stacked.

Source: the specification of GGUF in ggml; values of blocks are those of the library `gguf`.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from hwmodels import uniform_weight_bits
from hwmodels.networks import FAMILIES
from jaxspec.errors import InputError, one_line
from jaxspec.formats.codes import Codes
from jaxspec.formats.container import TensorForm
from jaxspec.formats.gguf_blocks import BLOCK_TYPES, block_codes
from jaxspec.models.gguf.settings import FREQUENCIES, LONG, SHORT, Converted, config_of, row_of
from jaxspec.models.gguf.tokenizers import tokenizer_files
from jaxspec.partial_files import GGUF_SUFFIX

__all__ = ["GgufFile", "gguf_in", "is_gguf", "open_gguf", "split_files"]

_SUFFIX, _MAGIC = GGUF_SUFFIX, b"GGUF"

#: Of the files of a network that is split: everything before, its number, how many there are.
_SPLIT = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)

#: Projectors of images, which lie beside the networks that they feed.
_PROJECTOR = "mmproj"

_DTYPES = {"F32": np.dtype(np.float32), "F16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16)}


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Whether a file is read as GGUF: by its name, or by how it begins, since Ollama's have no such name."""
    if not os.path.isfile(path):
        return False
    if str(path).endswith(_SUFFIX):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def gguf_in(folder: str | os.PathLike[str]) -> Path | None:
    """The file of a network in a folder of GGUF files; None: the folder has none, or a checkpoint of Hugging Face.

    Raises:
        InputError: it has several networks.
    """
    folder = Path(folder)
    if not os.path.isdir(folder) or (folder / "config.json").exists():
        return None
    found = sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX and _PROJECTOR not in path.name)
    whole = lambda path: (part := _SPLIT.fullmatch(path.name)) is None or int(part["number"]) == 1
    first = [path for path in found if whole(path)] or found
    if len(first) > 1:
        raise InputError(
            f"{folder} has {len(first)} networks in GGUF files ({first[0].name}, {first[1].name}"
            f"{', ...' if len(first) > 2 else ''}); give one of the files"
        )
    return first[0] if first else None


def split_files(path: str | os.PathLike[str]) -> list[Path]:
    """All files of a network, whose first file or only one is given.

    Raises:
        InputError: another file than the first, or one that is missing.
    """
    path = Path(path)
    part = _SPLIT.fullmatch(path.name)
    if part is None:
        return [path]
    named = lambda number: path.with_name(f"{part['stem']}-{number:05d}-of-{part['count']}{_SUFFIX}")
    files = [named(number + 1) for number in range(int(part["count"]))]
    if int(part["number"]) != 1 or not files:
        raise InputError(
            f"{path} is file {int(part['number'])} of {len(files)} of a network; give the first, {named(1).name}"
        )
    for file in files:
        if not file.is_file():
            raise InputError(f"{path} is one of {len(files)} files of a network, and {file.name} is missing: fetch it")
    return files


class _Source(NamedTuple):
    """Where the values of a tensor are.

    Attributes:
        tensor: of the library.
        rows: numbers of its rows, in the order of the checkpoint's; None: as they are.
        expert: which part of the first axis; None: all.
        added: to every value.
    """

    tensor: Any
    rows: np.ndarray | None = None
    expert: int | None = None
    added: float = 0.0


class GgufFile:
    """A GGUF file or the files of one network, as a file of a Hugging Face checkpoint (see `SafetensorsFile`).

    Attributes:
        path: of the first file.
        name: that a container has for it.
        config: what config.json would say.
        beside: name -> content of the files that lie beside the weights of a checkpoint.
        quantized: types of its tensors that have fewer than 16 bits.
        tensors: what it holds, in the order of the files.
        in_codes: bytes of each matrix that `codes` gives.
    """

    name = "model.safetensors"

    def __init__(self, path: str | os.PathLike[str], *, exact: bool = False):
        """Open and check.

        Args:
            exact: blocks of few bits are read as the float32 values that they stand for.
        Raises:
            InputError: the library is missing, or the file is damaged, of an unknown architecture or of unknown types.
        """
        self.path = path = Path(path)
        readers = [_reader(file) for file in split_files(path)]
        stored = {tensor.name: tensor for reader in readers for tensor in reader.tensors}
        self._types = {tensor.name: tensor.tensor_type.name for tensor in stored.values()}
        self._check_types(stored)
        self.quantized = frozenset(self._types.values()) - {"F32", "F16", "BF16"}
        try:
            self.metadata = {name: field.contents() for name, field in readers[0].fields.items()}
            row = row_of(self.metadata)
            if "token_embd.weight" not in stored:
                raise ValueError("it has no tensor 'token_embd.weight'")
            settings = {name: stored.pop(name).data for name in (FREQUENCIES, LONG, SHORT) if name in stored}
            vocab = int(stored["token_embd.weight"].shape[1])
            self.config = config_of(self.metadata, stored, vocab, settings)
        except (NotImplementedError, ValueError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path}: {one_line(error)}; use a GGUF file, or a Hugging Face checkpoint, of a known family"
            ) from error
        self.config["architectures"] = [_running(row).architecture]
        self._sources = dict(_sources(stored, self.config, row, self.metadata["general.architecture"]))
        narrow = {self._types[name] for name, tensor in stored.items() if len(tensor.shape) > 1} <= {"F16", "F32"}
        self._dtypes = {"F32": "F32", "F16": "F16" if narrow else "BF16", "BF16": "BF16"}
        self._others = "F32" if exact else "BF16"
        self.tensors = [self._form(name, source) for name, source in self._sources.items()]
        self.in_codes = {
            form.name: self._data(source).nbytes
            for form, source in zip(self.tensors, self._sources.values(), strict=True)
            if source.tensor.tensor_type.name in BLOCK_TYPES and len(form.shape) == 2
        }

    def _check_types(self, stored: Mapping[str, Any]) -> None:
        import gguf

        known = {"F32", "F16", *(kind.name for kind in gguf.quants._type_traits)}
        for name in stored:
            if self._types[name] not in known:
                raise InputError(
                    f"{self.path} has tensor {name!r} of type {self._types[name]}, which the library gguf does not read; "
                    f"allowed are {', '.join(sorted(known))}: use a file of another type"
                )

    def _form(self, name: str, source: _Source) -> TensorForm:
        shape = tuple(int(length) for length in reversed(source.tensor.shape))
        shape = shape if source.expert is None else shape[1:]
        dtype = self._dtypes.get(source.tensor.tensor_type.name, self._others)
        return TensorForm(name, dtype, shape, math.prod(shape) * _DTYPES[dtype].itemsize)

    @property
    def beside(self) -> dict[str, bytes]:
        """See above."""
        found = {"config.json": json.dumps(self.config, indent=2).encode()}
        return found | tokenizer_files(self.metadata, self.path, self.config["vocab_size"])

    @property
    def weight_bits(self) -> dict[str, float]:
        """Bits per weight of each kind of matrix, blocks' scales included, on average over its matrices; 16 of kinds that are
        not there. A head that is the embedding is read as this is."""
        running = FAMILIES[self.config["model_type"]].running
        assert running is not None
        kinds = {template: (parameter,) for parameter, template in running.tensors.items()} | dict(running.fused)
        totals: dict[str, list[float]] = {}
        for name, source in self._sources.items():
            template = re.sub(r"(?<=experts\.)\d+", "{expert}", re.sub(r"(?<=layers\.)\d+", "{layer}", name, count=1))
            for kind in kinds.get(template, ()):
                held = totals.setdefault(kind, [0.0, 0.0])
                held[0] += 8.0 * float(source.tensor.n_bytes)
                held[1] += float(source.tensor.n_elements)
        others = dict.fromkeys(uniform_weight_bits(16.0), 16.0)
        bits = {kind: total / count for kind, (total, count) in totals.items() if kind in others}
        return others | {"lm_head": bits.get("embed", others["embed"])} | bits

    @property
    def header_text(self) -> str:
        """The header of a safetensors file of these tensors."""
        ends = np.cumsum([form.bytes for form in self.tensors]).tolist()
        entries: dict[str, Any] = {
            form.name: {"dtype": form.dtype, "shape": list(form.shape), "data_offsets": [end - form.bytes, end]}
            for form, end in zip(self.tensors, ends, strict=True)
        }
        text = json.dumps({"__metadata__": {"format": "pt"}, **entries}, separators=(",", ":"))
        return text + " " * (-len(text.encode()) % 8)

    def read(self, form: TensorForm, first: int = 0, count: int | None = None) -> np.ndarray:
        """Elements `first` to `first + count` of a tensor, or all from `first` on, as patterns."""
        import gguf

        source, dtype = self._sources[form.name], _DTYPES[form.dtype]
        end = form.elements if count is None else first + count
        data, kind = self._data(source), source.tensor.tensor_type
        # Values of a vector are rows of their own; none is in blocks.
        columns = form.columns if len(form.shape) > 1 else 1
        rows = slice(first // columns, -(-end // columns))
        data = data.reshape(form.elements // columns, -1)
        data = data[rows if source.rows is None else source.rows[rows]]
        if kind.name == "BF16":
            values = np.ascontiguousarray(data).view(_DTYPES["BF16"])
        else:
            values = data if kind.name in ("F32", "F16") else gguf.quants.dequantize(data, kind)
        if source.added:
            values = values.astype(np.float32) + np.float32(source.added)
        patterns = np.ascontiguousarray(values.astype(dtype, copy=False)).reshape(-1).view(form.pattern_dtype)
        begin = first - rows.start * columns
        return patterns[begin : begin + end - first]

    def codes(self, form: TensorForm) -> Codes:
        """A matrix of `in_codes`."""
        source = self._sources[form.name]
        data = self._data(source).reshape(form.shape[0], -1)
        return block_codes(data if source.rows is None else data[source.rows], source.tensor.tensor_type.name)

    @staticmethod
    def _data(source: _Source) -> np.ndarray:
        return source.tensor.data if source.expert is None else source.tensor.data[source.expert]

    def release(self) -> None:
        """Values that were read are copies; the system drops pages of the file by itself."""


def _reader(path: Path) -> Any:
    try:
        import gguf
    except ImportError as error:
        raise InputError(
            f"{path} needs the package gguf, which is not installed; run: pip install 'jaxspec[gguf]'"
        ) from error
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            raise ValueError(f"it begins with {magic!r}, not with {_MAGIC!r}")
        reader = gguf.GGUFReader(path)
        if reader.byte_order == "S":
            raise ValueError("its byte order is not this machine's")
        return reader
    except Exception as error:  # the library lets errors of NumPy and of enums through
        raise InputError(f"{path} is no whole GGUF file ({one_line(error)}); fetch it again") from error


@functools.lru_cache(maxsize=2)
def _opened(path: Path, states: tuple[tuple[int, int], ...], exact: bool) -> GgufFile:
    return GgufFile(path, exact=exact)


def open_gguf(path: str | os.PathLike[str], *, exact: bool = False) -> GgufFile:
    """`GgufFile`, read once while the files stay as they are: their words take seconds.

    Raises:
        InputError: see `GgufFile`.
    """
    states = [os.stat(file) for file in split_files(path)]
    return _opened(Path(path), tuple((state.st_mtime_ns, state.st_size) for state in states), exact)


def _running(row: Converted) -> Any:
    running = FAMILIES[row.model_type].running
    assert running is not None, row.model_type
    return running


def _sources(
    stored: Mapping[str, Any], config: Mapping[str, Any], row: Converted, architecture: str
) -> Iterator[tuple[str, _Source]]:
    """Name in a Hugging Face checkpoint -> where its values are; tensors that no name leads to keep the file's own."""
    import gguf

    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    layers = config.get("num_hidden_layers", 0)
    names = gguf.get_tensor_name_map(number, layers)
    running, used = _running(row), set()
    fused = {parameter for held in running.fused.values() for parameter in held}
    own = [tensor for parameter, tensor in running.tensors.items() if parameter not in fused]
    for template in dict.fromkeys([*own, *running.fused]):
        for layer in range(layers if "{layer}" in template else 1):
            # Experts are merged under the name without a number.
            merged = template.replace(".{expert}", "").replace("{layer}", str(layer))
            found = names.get_name(merged, try_suffixes=(".weight", ".bias"))
            if found is None or found not in stored:
                continue
            used.add(found)
            rows = rows_in_file(merged, config, row, int(stored[found].shape[-1]))
            source = _Source(stored[found], rows)
            if row.shifted and merged.endswith("norm.weight"):
                source = source._replace(added=-1.0)
            if "{expert}" not in template:
                yield merged, source
                continue
            for expert in range(int(stored[found].shape[-1])):
                yield template.format(layer=layer, expert=expert), source._replace(expert=expert)
    yield from ((name, _Source(tensor)) for name, tensor in stored.items() if name not in used)


def rows_in_file(name: str, config: Mapping[str, Any], row: Converted, rows: int) -> np.ndarray | None:
    """Rows of a matrix of queries or keys by their numbers in the file: there, the two rows of a plane are neighbours."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
    if not row.permuted or heads is None:
        return None
    count = int(config.get(heads, config.get("num_attention_heads", 1)))
    if count < 1 or rows % (2 * count):
        return None  # the shape is wrong, which the reader says
    return np.arange(rows).reshape(count, rows // count // 2, 2).swapaxes(1, 2).reshape(-1)
