"""What tests of containers share beside `container_samples`."""

import numpy as np
import pytest
from container_samples import coding_everything, pack_to, tensor, weights, write_checkpoint

from jaxspec.formats.container import CODECS, Container, field_codec, tensors


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of 1000 elements instead of millions."""
    monkeypatch.setattr(tensors, "CHUNK_ELEMENTS", 1000)
    monkeypatch.setattr(field_codec, "CHUNK_ELEMENTS", 1000)


@pytest.fixture
def everything_coded():
    """Tensors are coded also where that gains nothing."""
    with coding_everything():
        yield


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Of each scheme: the bytes of a small container, and its tensors as target."""
    folder = tmp_path_factory.mktemp("packed")
    tensors = [
        tensor("matrix", "BF16", weights((20, 61), seed=1)),
        tensor("vector", "BF16", weights((1220,), seed=2)),
        tensor("bias", "F32", np.arange(3, dtype=np.uint32).reshape(3, 1)),
    ]
    source = write_checkpoint(folder / "source" / "model.safetensors", tensors)
    (folder / "source" / "config.json").write_text("{}")
    found = {}
    for scheme_name in CODECS:
        pack_to(folder / "a.jspk", source.parent, scheme_name)
        with Container(folder / "a.jspk") as container:
            target = {name: container.read(name) for name in container.tensors}
        found[scheme_name] = (folder / "a.jspk").read_bytes(), target
    return found
