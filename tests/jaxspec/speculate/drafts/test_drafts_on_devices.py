"""Drafts lie where their target lies: on a mesh, or in host memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from draft_cycles import HEAD, SMALL, TARGET
from safetensors.numpy import load_file, save_file

from jaxspec.models import load_directory, save_directory
from jaxspec.models.draft_head import abstract_head_params
from jaxspec.models.head_files import save_head
from jaxspec.models.streamed import is_streamed
from jaxspec.speculate.drafts.quantized_draft import quantized_copy
from jaxspec.tuning import target_params

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def written(tmp_path_factory, random_network):
    """A target in float32, whose head knows it by all of its bits, and another network."""
    folder, rng = tmp_path_factory.mktemp("networks"), np.random.default_rng(4)
    save_directory(random_network(TARGET, 0, sharpness=3.0), TARGET, folder / "target", max_positions=64)
    tensors = load_file(folder / "target" / "model.safetensors")
    wide = {name: (tensor.astype(np.float32) * np.float32(1.001)) for name, tensor in tensors.items()}
    save_file(wide, folder / "target" / "model.safetensors", metadata={"format": "pt"})
    target = load_directory(folder / "target").params
    assert target["embed"].dtype == jnp.float32
    save_directory(random_network(SMALL, 3, sharpness=3.0), SMALL, folder / "small", max_positions=64)
    of = lambda leaf: jnp.asarray(leaf.shape[-1] ** -0.5 * rng.standard_normal(leaf.shape, np.float32), jnp.bfloat16)
    head = jax.tree.map(of, abstract_head_params(HEAD))
    save_head(head, HEAD, folder / "head", target=target, max_positions=32)
    return folder


def test_drafts_share_the_mesh_of_their_target(written):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    process = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "drafts_on_devices.py")]
        + [str(written / name) for name in ("target", "small", "head")],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    for name, one in found["one"].items():
        four = found["four"][name]
        assert one["devices"] == [1], name
        assert [four[key] for key in ("tokens", "cycles")] == [one[key] for key in ("tokens", "cycles")], name
        if name != "head":  # its own matrices are everywhere, as they are
            assert four["devices"] == [4], name


@pytest.mark.parametrize("stream", [True, False])
def test_the_copy_in_4_bits_is_the_same_where_layers_stream(written, stream):
    params = target_params(load_directory(written / "target", stream=stream).params)
    whole = quantized_copy(target_params(load_directory(written / "target").params), TARGET)
    made = quantized_copy(params, TARGET)
    # Of a streamed network no matrix exists until it is used.
    assert is_streamed(made) == stream
    for kind in TARGET.matrix_kinds:
        layers = [made["layers"][kind].take(jnp.asarray(i)).values() for i in range(TARGET.num_layers)]
        np.testing.assert_array_equal(np.stack(layers), whole["layers"][kind].values())
