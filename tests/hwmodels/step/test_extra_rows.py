"""Instructions of further rows: by hand, and as a part of every step that has them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import ExtraRows, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.network.operators import StepShape

NETWORKS = ("llama-3.2-1b", "qwen3-30b-a3b")
DEVICE = catalog.device("rtx-3090")


def work(network="llama-3.2-1b", tokens=3.0, batch=1.0, bits=4.5):
    return step_operators(
        catalog.architecture(network),
        StepShape(
            tokens=tokens, batch=batch, context_tokens=500.0, weight_bits=uniform_weight_bits(bits), kv_bits=16.0
        ),
    )


def total_s(device=DEVICE, instructions=3.0, until=16.0, **step):
    return step_cost(device.replace(extra_rows=ExtraRows(instructions, until)), work(**step)).total_s


def test_rows_beyond_the_first_take_instructions_of_each_weight():
    # Two further rows of 3 instructions, each a multiply-add of 35.6 TFLOPS, for 1.236 billion weights of matrices.
    network = catalog.architecture("llama-3.2-1b")
    layer = 2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192
    weights = 16 * layer + 128256 * 2048
    assert float(network.num_layers) == 16.0
    added_s = float(total_s(tokens=3.0) - step_cost(DEVICE, work(tokens=3.0)).total_s)
    assert added_s == pytest.approx(2 * 3 * 2 * weights / 35.6e12, rel=1e-4)


def test_an_engine_says_from_which_row_on_its_kernels_use_tiles():
    mlx, llama = (catalog.device("gb10", engine=name).extra_rows for name in ("mlx-cuda", "llama.cpp"))
    assert (float(mlx.until), float(llama.until)) == (8.0, 16.0)


def test_an_m3_ultra_has_kernels_of_mlx_with_mlx_alone():
    metal, mlx = (catalog.device("m3-ultra", engine=name) for name in ("llama.cpp", "mlx"))
    assert (metal.matrix_unit, float(metal.extra_rows.instructions)) == (None, 7.9)
    assert mlx.matrix_unit is not None
    assert mlx.extra_rows is None
    assert not any(
        leaf.startswith("matrix_unit.") for leaf in catalog.device_entry("m3-ultra", engine="llama.cpp").sources
    )


def test_a_device_has_the_same_kernels_under_any_of_its_names():
    for engine in ("llama.cpp", "mlx"):
        chex.assert_trees_all_equal(*(catalog.device(name, engine=engine) for name in ("m4-pro", "Apple M4 Pro")))


def test_mlx_multiplies_vectors_at_the_rate_of_each_gpu():
    device = catalog.device("m4-pro", engine="mlx")
    few, many = (
        float(
            device.matrix_unit.product_time(
                rows, 4096.0, 4096.0, peak_flops_per_s=device.peak_flops_per_s, weight_bits=4.5
            )
        )
        for rows in (4.0, 10.0)
    )
    # One pass of 3 instructions per weight and 3.34 for each row, as long as multiply-adds of 8.079 TFLOPS; tiles of 32 rows.
    assert few == pytest.approx((3 + 3.34 * 4) * 2 * 4096**2 / 8.079e12, rel=1e-5)
    assert many == pytest.approx((32 + 12.7) / 0.788 * 2 * 4096**2 / 8.079e12, rel=1e-5)
    assert catalog.device("m1-ultra", engine="mlx").extra_rows is not None  # converts bfloat16 in software


@pytest.mark.parametrize("network", NETWORKS)
def test_more_rows_bits_or_slower_rates_never_save_time(network):
    for name, values in (
        ("tokens", (1.0, 2.0, 5.0, 17.0, 60.0)),
        ("batch", (1.0, 3.0, 20.0)),
        ("bits", (3.0, 4.5, 16.0)),
    ):
        found = [float(total_s(network=network, **{name: value})) for value in values]
        assert found == sorted(found), name
    faster = DEVICE.replace(vector_flops_per_s=2.0 * DEVICE.vector_flops_per_s)
    assert float(total_s(faster, network=network)) < float(total_s(network=network))


def test_gradients_and_maps_over_instructions_are_right():
    slope = jax.jit(jax.grad(lambda instructions: total_s(instructions=instructions)))(3.0)
    difference = (float(total_s(instructions=4.0)) - float(total_s(instructions=2.0))) / 2.0
    assert float(slope) == pytest.approx(difference, rel=1e-3)
    family = jax.vmap(lambda instructions: total_s(instructions=instructions))(jnp.array([0.0, 3.0]))
    np.testing.assert_allclose(family, [total_s(instructions=0.0), total_s(instructions=3.0)], rtol=1e-6)
