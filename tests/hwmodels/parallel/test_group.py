"""Groups of devices: one device is no group, shares by hand, what more devices may do, gradients, and refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Architecture, Workload, catalog, price_steps, uniform_footprint
from hwmodels.catalog.entries import EntryError
from hwmodels.network.operators import OPERATORS, busiest_load, decode_step
from hwmodels.parallel import COLLECTIVES, collective_time
from hwmodels.parallel.group import fullest_stage, held_share, share_of_architecture
from hwmodels.step.capacity import held_bytes

pytestmark = pytest.mark.device_matrix

DENSE = Architecture(
    num_layers=6, hidden_size=1536, intermediate_size=4608, num_heads=24, num_kv_heads=6, head_dim=64, vocab_size=33000
)
MIXTURE = dataclasses.replace(
    DENSE,
    num_moe_layers=5,
    num_experts=48,
    experts_per_token=3,
    expert_intermediate_size=960,
    shared_intermediate_size=480,
)
LATENT = dataclasses.replace(MIXTURE, kv_lora_rank=256, q_lora_rank=512, rope_head_dim=32, v_head_dim=64)
FOOTPRINT, WORKLOAD = uniform_footprint(16.0), Workload(batch=24.0, context_tokens=1700.0)
NAMES = ("tensor_parallel", "expert_parallel", "data_parallel", "pipeline")


@pytest.fixture(scope="module")
def device():
    entry = catalog.device_entry("rtx-4090")
    return catalog.grouped(entry, catalog.Parallelism(), "rtx-4090", always=True).device


@jax.jit
def _price(device, counts, network, batch):
    if counts is not None:
        device = dataclasses.replace(device, group=device.group.replace(**dict(zip(NAMES, counts))))
    step = decode_step(dataclasses.replace(WORKLOAD, batch=batch), footprint=FOOTPRINT)
    return price_steps(device, network, [step])[0]


def price(device, counts, network=LATENT, batch=24.0):
    arguments = jax.tree.map(
        lambda leaf: jnp.asarray(float(leaf)), (device, None if counts is None else tuple(counts), network, batch)
    )
    return jax.device_get(_price(*arguments))


def test_shares_of_a_dense_network_by_hand(device):
    alone, four = (price(device, (tensor, 1, 1, 1), DENSE) for tensor in (1, 4))
    read = lambda found, name: float(found.work.weight_bytes[OPERATORS.index(name)])
    for name in ("qkv", "o", "gate_up", "down", "lm_head"):
        assert read(four, name) == pytest.approx(read(alone, name) / 4, rel=1e-6)
    assert read(four, "norm") == read(alone, "norm")
    # Key-value heads are repeated beyond six devices.
    assert float(share_of_architecture(device.group.replace(tensor_parallel=12.0), DENSE).num_kv_heads) == 1.0
    link = device.group.link
    rows = 24 * 1536 * 2
    by_name = dict(zip(COLLECTIVES, four.cost.collective_s))
    one = float(collective_time(link, "all_reduce", rows, devices=4.0))
    assert by_name["all_reduce"] == pytest.approx((1 + 2 * 6) * one, rel=1e-5)
    logits = float(collective_time(link, "all_gather", 24 * 33000 * 2, devices=4.0))
    assert by_name["all_gather"] == pytest.approx(logits, rel=1e-5)
    assert float(four.cost.total_s) == pytest.approx(
        four.cost.operator_s.sum() + four.cost.collective_s.sum(), rel=1e-5
    )


def test_experts_that_tokens_travel_to(device):
    # Four replicas of one device, whose experts are spread over all four.
    found = price(device, (1, 4, 4, 1), MIXTURE)
    own = price(device, (1, 1, 4, 1), MIXTURE)
    by_name = dict(zip(COLLECTIVES, found.cost.collective_s))
    share = float(busiest_load(48.0, 3.0, 1.0, devices=4.0, sequences=24.0)) / 4
    assert share > 1.1 / 4
    copies = 4 * (1 - (1 - share) ** 3)
    # As many rows come to the busiest device as in draws of 24 rows, each with three of 48 experts.
    rng = np.random.default_rng(7)
    rows = [np.array([rng.choice(48, 3, replace=False) // 12 for _ in range(24)]) for _ in range(400)]
    arriving = [max((one == device).any(axis=1).sum() for device in range(4)) for one in rows]
    assert 24 / 4 * copies == pytest.approx(np.mean(arriving), rel=0.06)
    message = 24 / 4 * copies * 1536 * 2
    one = float(collective_time(device.group.link, "all_to_all", message, devices=4.0))
    assert by_name["all_to_all"] == pytest.approx(2 * 5 * one, rel=1e-5)
    assert by_name["all_reduce"] == by_name["send"] == 0
    # Less is read of the experts than by a replica with all of them, and attention's share is the same.
    expert, attention = OPERATORS.index("expert_down"), OPERATORS.index("attention")
    assert found.work.weight_bytes[expert] < own.work.weight_bytes[expert]
    assert found.work.kv_bytes[attention] == own.work.kv_bytes[attention]
    assert float(found.work.stored.experts) == pytest.approx(float(own.work.stored.experts) / 4, rel=1e-6)


def test_the_fullest_stage_sets_the_pace_and_is_what_a_device_holds(device):
    seven = dataclasses.replace(DENSE, num_layers=7)
    group = lambda stages: device.group.replace(pipeline=float(stages))
    for stages, layers in ((1, 7), (2, 4), (3, 3), (4, 2), (5, 2), (7, 1), (9, 1)):
        assert float(fullest_stage(group(stages), seven)) * 7 == pytest.approx(layers, rel=1e-6)
        assert float(held_share(group(stages), seven, WORKLOAD)[0].num_layers) == pytest.approx(layers, rel=1e-6)
    assert float(fullest_stage(group(2.25), seven)) * 7 == pytest.approx(0.75 * 4 + 0.25 * 3, rel=1e-6)

    def waits(network, stages, batch):
        found = price(device, (1, 1, 1, stages), network, batch)
        sent = (stages - 1) * float(
            collective_time(device.group.link, "send", max(batch / stages, 1.0) * 1536 * 2, devices=2.0)
        )
        return float(found.cost.collective_s[COLLECTIVES.index("send")]) - sent, found

    own, found = waits(seven, 4, 24.0)
    # 4 times 2 layers where 7 are; all four parts of the batch are on their way.
    assert own == pytest.approx((float(found.cost.total_s) - own) / 7, rel=1e-3)
    assert float(found.cost.total_s) == pytest.approx(
        found.cost.operator_s.sum() + found.cost.collective_s.sum(), rel=1e-5
    )
    assert abs(waits(DENSE, 3, 24.0)[0]) < 1e-3 * own  # six layers on three stages
    # A single sequence passes one stage after the other, and meets nobody.
    assert abs(waits(seven, 4, 1.0)[0]) < 1e-3 * own


def test_more_devices_never_hold_or_move_more(device):
    held = lambda counts: float(
        held_bytes(
            (parts := held_share(device.group.replace(**dict(zip(NAMES, counts))), LATENT, WORKLOAD))[0],
            batch=parts[1].batch,
            context_tokens=WORKLOAD.context_tokens,
            weight_bits=FOOTPRINT.target_weight_bits,
            kv_bits=16.0,
        ).total
    )
    moved = lambda found: (found.work.weight_bytes + found.work.kv_bytes).sum()
    rng = np.random.default_rng(0)
    for _ in range(25):
        counts = rng.choice([1.0, 2.0, 3.0, 6.0], 4)
        more, place = counts.copy(), rng.integers(4)
        more[place] *= 2
        batch = float(rng.integers(1, 60))
        assert held(more) <= held(counts) * (1 + 1e-6)
        if NAMES[place] != "expert_parallel":  # whole experts are spread less evenly than their columns
            assert moved(price(device, more, batch=batch)) <= moved(price(device, counts, batch=batch)) * (1 + 1e-6)


def test_gradients_against_differences(device):
    with jax.enable_x64(True):
        of = jax.jit(jax.value_and_grad(lambda counts: _price(device, tuple(counts), LATENT, 24.0).cost.total_s))
        at = jnp.array([2.2, 5.3, 1.7, 2.4])
        slopes = np.asarray(of(at)[1])
        for place in range(4):
            step = 1e-5 * jnp.eye(4)[place]
            assert slopes[place] == pytest.approx(float(of(at + step)[0] - of(at - step)[0]) / 2e-5, rel=1e-3)


@pytest.mark.parametrize(
    ("parallelism", "words"),
    [
        ({"tensor": 5}, "tensor_parallel is 5, but llama-3.1-70b has 64 heads; give a divisor of it, such as"),
        ({"tensor": 2, "expert": 2}, "expert_parallel is 2, but llama-3.1-70b has no routed experts"),
        ({"pipeline": 81}, "pipeline is 81, but llama-3.1-70b has 80 layers"),
        ({"tensor": 4, "draft_tensor": 3}, "it must divide tensor_parallel, which is 4"),
        ({"link": "nvlink4"}, "link would have no effect"),
    ],
)
def test_what_does_not_divide_is_refused(parallelism, words):
    with pytest.raises(EntryError, match=words):
        catalog.check_parallelism(
            catalog.Parallelism(**parallelism), catalog.architecture("llama-3.1-70b"), "llama-3.1-70b"
        )


def test_mixtures_devices_and_links_that_do_not_fit_are_refused():
    check = lambda **parallelism: catalog.check_parallelism(
        catalog.Parallelism(**parallelism), catalog.architecture("qwen3-30b-a3b"), "qwen3-30b-a3b"
    )
    check(tensor=4, expert=8, data=2)
    with pytest.raises(EntryError, match="expert_parallel is 3, but qwen3-30b-a3b has 128 experts"):
        check(tensor=4, expert=3)
    with pytest.raises(EntryError, match="must divide tensor_parallel x data_parallel, which is 4"):
        check(tensor=4, expert=8)
    for name, words in (("elmoe3d-hb8", "2 memories"), ("hexagon-v75", "give link: ")):
        with pytest.raises(EntryError, match=words):
            catalog.grouped(catalog.device_entry(name), catalog.Parallelism(tensor=2), name)
