"""What tests of containers share beside `container_samples`."""

import jax
import pytest
from container_samples import coding_everything

from jaxspec.formats.container import field_codec, tensors


@pytest.fixture(autouse=True, scope="module")
def _compiled_quickly():
    # Compiling is what these tests spend their time on, and the tensors are small.
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


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
