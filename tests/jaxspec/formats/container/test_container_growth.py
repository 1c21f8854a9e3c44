"""No container is more than 2 % larger than the files it holds, whatever they are, beyond what an empty one takes."""

import string
import zlib

import ml_dtypes
import numpy as np
import pytest
from container_samples import Tensor, pack_to, tensor, weights, write_checkpoint

from jaxspec.formats.container import CODECS, Container, unpack

#: Prelude, names of keys, the name of the file, and what divisions may take of a small one.
FIXED_BYTES = 800

LETTERS = np.array(list(string.ascii_letters + string.digits + "._"))

#: Bytes of an element and dtype.
NOISE = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I8": 1, "F64": 8}


def named(rng, length):
    return "".join(rng.choice(LETTERS, length))


def noise(rng, name, dtype, shape):
    return Tensor(name, dtype, shape, rng.bytes(int(np.prod(shape)) * NOISE[dtype]))


def hostile(kind, rng):
    """Tensors that gain little or nothing, many of them, or names that are longer than what they name."""
    if kind == "noise":
        return [noise(rng, dtype, dtype, (32, 40)) for dtype in NOISE]
    if kind == "one value":
        return [noise(rng, "w", "BF16", (1,))]
    if kind == "empty":
        return [Tensor(named(rng, 4) + str(i), "F32", (0, i), b"") for i in range(300)]
    if kind == "tiny":
        return [noise(rng, f"{named(rng, 3)}{i}", "BF16", (1 + i % 4,)) for i in range(400)]
    if kind == "ordinary names":
        return [noise(rng, f"model.layers.{i}.norm.weight", "BF16", (4,)) for i in range(300)]
    if kind == "long names":
        return [noise(rng, named(rng, 300) + str(i), "F16", (3,)) for i in range(60)]
    if kind == "just in a section":
        return [noise(rng, named(rng, 5) + str(i), "I8", (1536,)) for i in range(30)]
    if kind == "compressed":
        text = zlib.compress(weights((64, 96), seed=4).tobytes(), 9)
        return [Tensor("data", "U8", (len(text),), text)]
    if kind == "small matrices":
        return [tensor(f"w{i}", "BF16", weights((4, 32 + i), seed=i)) for i in range(12)]
    if kind == "half precision":
        return [tensor("w", "F16", weights((40, 96), seed=5, dtype=np.float16))]
    return [tensor("w", "BF16", weights((40, 96), seed=6, dtype=ml_dtypes.bfloat16))]


KINDS = ["noise", "one value", "empty", "tiny", "ordinary names", "long names", "just in a section", "compressed"]


def grown(path, source):
    """Bytes that a container takes beyond 2 % more than its file."""
    return path.stat().st_size - 1.02 * source.stat().st_size


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_compress_hardly_grows(tmp_path, kind):
    source = write_checkpoint(tmp_path / "m.safetensors", hostile(kind, np.random.default_rng(7)))
    for scheme_name, codec in CODECS.items():
        if kind == "noise" and not codec.lossless:
            continue  # it has infinities, which scales cannot hold
        pack_to(tmp_path / "a.jspk", source, scheme_name)
        assert grown(tmp_path / "a.jspk", source) < FIXED_BYTES, scheme_name
        with Container(tmp_path / "a.jspk") as container:
            if container.lossless:
                unpack(container, tmp_path / "out.safetensors", force=True)
                assert (tmp_path / "out.safetensors").read_bytes() == source.read_bytes()
