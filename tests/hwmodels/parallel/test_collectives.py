"""Collectives: formulas by hand, limits, gradients, and the links of the catalog."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.catalog.links import link, link_names
from hwmodels.parallel import (
    COLLECTIVES,
    CollectiveKernel,
    Link,
    collective_time,
    collective_work,
    kernels_time,
)

RING = CollectiveKernel(launch_s=3e-6, hop_s=2e-6, efficiency=0.5, algorithm="ring")


def test_a_ring_all_reduce_by_hand():
    # 4 devices, 12 MB: 3 rounds to sum and 3 to spread, each device sends 2 · 3/4 · 12 MB = 18 MB at 0.5 · 6 GB/s.
    found = kernels_time([RING], "all_reduce", 12e6, devices=4.0, bandwidth_bytes_per_s=6e9)
    assert float(found) == pytest.approx(3e-6 + 6 * 2e-6 + 18e6 / 3e9, rel=1e-6)


def test_what_each_algorithm_sends():
    # 5 devices, 10 bytes.
    expected = {
        ("all_reduce", "one_shot"): (1, 40),
        ("all_reduce", "two_shot"): (2, 16),
        ("all_reduce", "ring"): (8, 16),
        ("all_gather", "ring"): (4, 8),
        ("reduce_scatter", "one_shot"): (1, 8),
        ("all_to_all", "one_shot"): (1, 8),
        ("send", "one_shot"): (1, 10),
    }
    for (collective, algorithm), (rounds, sent) in expected.items():
        work = collective_work(collective, algorithm, 10.0, 5.0)
        assert (float(work.rounds), float(work.sent_bytes)) == pytest.approx((rounds, sent), rel=1e-6)
    with pytest.raises(ValueError, match="'two_shot'; allowed are"):
        collective_work("send", "two_shot", 1.0, 2.0)


def test_a_bridge_is_crossed_beyond_two_devices():
    bridged = dataclasses.replace(RING, bridge=0.25)
    at = lambda kernel, count: float(
        kernels_time([kernel], "all_gather", 1e7, devices=count, bandwidth_bytes_per_s=1e9)
    )
    assert at(bridged, 2.0) == at(RING, 2.0)
    # 4 devices: 3/4 of 10 MB, each byte of which takes 0.25 · 4 more of a byte's time.
    assert at(bridged, 4.0) - at(RING, 4.0) == pytest.approx(0.75e7 * 0.25 * 4 / 1e9, rel=1e-5)


@pytest.mark.parametrize("name", link_names())
def test_links_of_the_catalog(name):
    one = link(name, engine="vllm")
    sizes, counts = jnp.array([0.0, 1.0, 3e3, 7e6, 1e9])[:, None], jnp.array([1.0, 2.0, 3.0, 8.0])
    half = jax.tree.map(lambda leaf: leaf, one)
    half = dataclasses.replace(half, bandwidth_bytes_per_s=2 * half.bandwidth_bytes_per_s, **_halved(half))
    for collective in COLLECTIVES:
        seconds = np.asarray(collective_time(one, collective, sizes, devices=counts))
        assert np.all(seconds[0] == 0)
        assert np.all(seconds[:, 0] == 0)
        assert np.all(np.diff(seconds[1:, 1:], axis=0) > 0)  # a larger message takes longer
        np.testing.assert_allclose(
            np.asarray(collective_time(half, collective, sizes, devices=counts)), seconds / 2, rtol=1e-5
        )


def _halved(one: Link):
    kernels = {
        name: tuple(
            dataclasses.replace(k, launch_s=k.launch_s / 2, hop_s=k.hop_s / 2, peer_s=k.peer_s / 2)
            for k in getattr(one, name)
        )
        for name in COLLECTIVES
    }
    return kernels | {"launch_s": one.launch_s / 2, "latency_s": one.latency_s / 2}


@pytest.mark.device_matrix
def test_gradients_against_differences():
    with jax.enable_x64(True):
        one = link("pcie5")
        of = lambda bandwidth, size, count: collective_time(
            dataclasses.replace(one, bandwidth_bytes_per_s=bandwidth), "all_reduce", size, devices=count
        )
        at = (6.3e10, 3.3e6, 5.5)
        for place, value in enumerate(at):
            moved = [of(*(v * (1 + sign * 1e-4) if i == place else v for i, v in enumerate(at))) for sign in (1, -1)]
            slope = float(jax.jit(jax.grad(of, argnums=place))(*at))
            assert slope == pytest.approx(float(moved[0] - moved[1]) / (2e-4 * value), rel=1e-4)
