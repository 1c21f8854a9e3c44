"""Checkpoints made by hand, a split that needs no network, and containers of both."""

import contextlib
import hashlib
import json
import zlib
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import ml_dtypes
import numpy as np

from jaxspec.formats.container import Container, Selection, open_checkpoint, pack, packing, slice_codec, unpack
from jaxspec.formats.container.codec import CodedSize
from jaxspec.formats.container.layout import PRELUDE_BYTES, compressed, directory_bytes, uncompressed, write_prelude

LOSSLESS = ("huffman", "huffllm", "cassandra1", "cassandra1-coded", "raw")


class Tensor(NamedTuple):
    """A tensor as a checkpoint stores it."""

    name: str
    dtype: str
    shape: tuple
    data: bytes


def tensor(name, dtype, patterns):
    """From patterns, in their shape."""
    return Tensor(name, dtype, patterns.shape, np.ascontiguousarray(patterns).tobytes())


def weights(shape, *, seed, dtype=ml_dtypes.bfloat16, scale=0.02):
    """Patterns of Gaussian weights with rows of mildly different scale."""
    rng = np.random.default_rng(seed)
    rows = scale * np.exp(0.3 * rng.standard_normal((*shape[:-1], 1)))
    return (rows * rng.standard_normal(shape)).astype(dtype).view(np.uint16)


def write_checkpoint(path, tensors, *, metadata=None, padding=0):
    """A safetensors file, byte by byte: a library would choose the order, and refuse dtypes that NumPy lacks."""
    header, place = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + len(data)]}
        place += len(data)
    text = json.dumps(header, ensure_ascii=False).encode() + b" " * padding
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(found.data for found in tensors))
    return path


def largest_of_rows(patterns, shape, kept_per_row):
    """The `kept_per_row` largest magnitudes of each row; of equal ones the first."""
    mask = np.zeros(shape, bool)
    for row, patterns_of_row in zip(mask, np.asarray(patterns).reshape(shape)):
        magnitude = patterns_of_row.astype(np.int32) & 0x7FFF
        row[np.argsort(-magnitude, kind="stable")[:kept_per_row]] = True
    return mask


class ByMagnitude:
    """A split without a network: of every matrix a share of the columns, and some bits less."""

    def __init__(self, kept=0.6, cut_bits=4, whole=("embed",)):
        self.kept, self.cut_bits, self.whole = kept, cut_bits, whole

    def selection(self, form):
        if len(form.shape) != 2 or any(word in form.name for word in self.whole):
            return None
        return Selection(round(self.kept * form.columns), self.cut_bits)

    def keep(self, form, rows, kept_per_row):
        return largest_of_rows(rows, rows.shape, kept_per_row)


def pack_to(path, source, scheme_name, split=None, **options):
    """Pack a file or folder with a scheme."""
    return pack(open_checkpoint(source), path, scheme_name, split=split or ByMagnitude(), **options)


@contextlib.contextmanager
def coding_everything():
    """Tensors are coded by every codec that can, also where that gains nothing: for tests of codecs."""
    with (
        mock.patch.object(packing, "LEAST_BYTES", 0),
        mock.patch.object(slice_codec, "gains", return_value=True),
        mock.patch.object(CodedSize, "verdict", return_value=None),
        mock.patch.object(CodedSize, "hopeless", return_value=False),
    ):
        yield


def assert_survives(source, folder, scheme_name, **options):
    """Pack, read every tensor, unpack, and compare with what was there."""
    path = folder / f"{scheme_name}.jspk"
    packed = pack_to(path, source, scheme_name, **options)
    assert packed.file_bytes == path.stat().st_size
    checkpoint = open_checkpoint(source)
    with Container(path) as container:
        assert container.lossless
        for file, form in checkpoint.tensors():
            found = container.read(form.name)
            expected = file.read(form, 0, form.elements)
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes(), form
            assert container.tensors[form.name].sha256 == hashlib.sha256(expected.tobytes()).hexdigest()
        unpack(container, folder / f"{scheme_name} unpacked")
    files = [source] if source.is_file() else sorted(source.iterdir())
    for file in files:
        assert (folder / f"{scheme_name} unpacked" / file.name).read_bytes() == file.read_bytes()
    return path


def directory_of(content):
    """The directory of a container's bytes, and where it begins."""
    offset = int.from_bytes(content[16:24], "little")
    return json.loads(uncompressed(content[offset:], content[8], Path("a.jspk"))), offset


def signed_again(content, directory):
    """A container's sections under another directory, whose checksum fits."""
    return under_text(content, directory_bytes(directory))


def under_text(content, text):
    """A container's sections under a directory that is this text, whose checksum fits."""
    offset = int.from_bytes(content[16:24], "little")
    stored = compressed(text)
    return write_prelude(stored, offset, content[8]) + content[PRELUDE_BYTES:offset] + stored


def in_sections(content, directory):
    """`content` and `directory` with the headers in sections of their own, as older layouts have them: behind the others."""
    offset = int.from_bytes(content[16:24], "little")
    body = bytearray(content[:offset])
    for file in directory["files"]:
        text = file["header"].encode()
        text = len(text).to_bytes(8, "little") + text
        file["header"] = [len(body), len(text), zlib.crc32(text)]
        body += text
    body[16:24] = len(body).to_bytes(8, "little")
    return bytes(body), directory


def agreeing(content, directory):
    """`content` and `directory` with headers that list the directory's tensors, so that what stands behind them is met.

    The header sections move to the end of the sections.
    """
    offset = int.from_bytes(content[16:24], "little")
    body = bytearray(content[:offset])
    for index, file in enumerate(directory["files"]):
        header, place = {}, 0
        for entry in directory["tensors"]:
            if entry["file"] == index:
                span = [place, place := place + entry["bytes"]]
                header[entry["name"]] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": span}
        text = json.dumps(header).encode()
        text = len(text).to_bytes(8, "little") + text
        file["header"] = [len(body), len(text), zlib.crc32(text)]
        body += text
    body[16:24] = len(body).to_bytes(8, "little")
    return bytes(body), directory
