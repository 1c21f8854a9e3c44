"""Caches of experts: bytes counted by hand in two memories."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    EXPERT_OPERATORS,
    OPERATORS,
    Case,
    DraftCost,
    Footprint,
    Workload,
    catalog,
    chain_plan,
    price,
    uniform_weight_bits,
)
from hwmodels.memory.expert_hits import EvenHits, PowerLawHits
from hwmodels.memory.placement import AllExternal, BitSlices, ByMode, DraftCopies, ExpertCache, InOrder
from hwmodels.network.operators import decode_step, step_operators
from hwmodels.speculation.cycle import plan_steps
from hwmodels.speculation.draft_cost import COMPRESSED_COPY, held_with_draft, separate_draft_bytes
from hwmodels.step.step_cost import traffic_by_memory

pytestmark = pytest.mark.device_matrix

#: Without a unit of its own: what is tested is where bytes go.
DEVICE = catalog.device("elmoe3d-hb8").replace(matrix_unit=None)
WIDTHS = Footprint(
    draft_weight_bits=uniform_weight_bits(4.5),
    target_weight_bits=uniform_weight_bits(8.5),
    draft_kv_bits=16.0,
    target_kv_bits=16.0,
)
WORKLOAD = Workload(batch=1.0, context_tokens=10.0)
EXPERTS = np.array([name in EXPERT_OPERATORS for name in OPERATORS])
EVEN = EvenHits()
#: An expert has 3 matrices of 10 x 27 in 8.5 bits; there are 3 layers of 6.
EXPERT_BYTES = 810 * 8.5 / 8


@pytest.fixture
def mixture(small):
    return small.replace(
        num_moe_layers=3.0, num_experts=6.0, experts_per_token=2.0, expert_intermediate_size=27.0, intermediate_size=0.0
    )


def near_share(placement, mixture, step, experts_of_room, beside=0.0):
    """Share of the expert bytes that a step moves from the first memory, with room for some experts in each layer."""
    work = step_operators(mixture, jax.tree.map(lambda leaf: jnp.ravel(jnp.asarray(leaf, float))[0], step))
    rest = float(work.stored.kv + work.stored.dense - work.stored.by_the_row) + beside
    memory = DEVICE.memory.replace(capacity_bytes=rest + 3 * EXPERT_BYTES * experts_of_room)
    near, far = traffic_by_memory(DEVICE.replace(memory=memory, placement=placement), work)
    near, far = (float(np.sum(np.asarray(moved)[EXPERTS])) for moved in (near - work.activation_bytes, far))
    assert near + far == pytest.approx(
        3 * float(work.experts.touched) * EXPERT_BYTES * float(work.experts.read_bits) / 8.5
    )
    return near / (near + far)


def cycle_steps(draft_cost=COMPRESSED_COPY):
    return plan_steps(Case(None, None, WORKLOAD, WIDTHS, draft_cost), chain_plan(2.0))


def test_whole_experts_by_hand(mixture):
    decode, (draft, verify) = decode_step(WORKLOAD, footprint=WIDTHS), cycle_steps()
    for step in (decode, draft, verify):
        assert near_share(ExpertCache(EVEN), mixture, step, 2.4) == pytest.approx(2.4 / 6, rel=1e-4)
        assert near_share(ExpertCache(EVEN, whole=True), mixture, step, 2.4) == pytest.approx(2 / 6, rel=1e-4)
        assert near_share(ExpertCache(PowerLawHits(0.5)), mixture, step, 1.5) == pytest.approx(0.5, rel=1e-4)
        assert near_share(AllExternal(), mixture, step, 2.4) == 0
    # A draft that chooses among those in the cache never leaves it.
    pooled, _ = cycle_steps(DraftCost(pool_experts=2.4))
    assert near_share(ExpertCache(PowerLawHits(0.5)), mixture, pooled, 2.4) == pytest.approx(1.0)
    assert near_share(ExpertCache(EVEN), mixture, pooled, 1.8) == pytest.approx(0.75, rel=1e-4)


def test_leading_bits_by_hand(mixture):
    draft, verify = cycle_steps()
    slices = 2.4 * 8.5 / 4.5  # in the room of 2.4 experts
    assert near_share(BitSlices(hits=EVEN), mixture, draft, 2.4) == pytest.approx(slices / 6, rel=1e-4)
    assert near_share(BitSlices(hits=EVEN), mixture, verify, 2.4) == pytest.approx(slices / 6 * 4.5 / 8.5, rel=1e-4)
    assert near_share(BitSlices(hits=EVEN, whole=True), mixture, draft, 2.4) == pytest.approx(4 / 6, rel=1e-4)
    # Once all six leading slices lie there, what is left of the room holds other bits.
    others = (4.0 - 6 * 4.5 / 8.5) * 8.5 / 4.0
    expected = 4.5 / 8.5 + 4.0 / 8.5 * others / 6
    assert near_share(BitSlices(hits=EVEN), mixture, verify, 4.0) == pytest.approx(expected, rel=1e-4)
    assert near_share(BitSlices(hits=EVEN), mixture, draft, 4.0) == pytest.approx(1.0)
    modes = ByMode(ExpertCache(EVEN), BitSlices(hits=EVEN))
    assert near_share(modes, mixture, verify, 2.4) == pytest.approx(slices / 6 * 4.5 / 8.5, rel=1e-4)
    decode = decode_step(WORKLOAD, footprint=WIDTHS)
    assert near_share(modes, mixture, decode, 2.4) == pytest.approx(0.4, rel=1e-4)


def test_copies_of_a_draft_by_hand(mixture):
    apart = DraftCost(separate_weights=1.0)
    draft, verify = cycle_steps(apart)
    copies = 2.4 * 8.5 / 4.5
    assert near_share(DraftCopies(EVEN), mixture, draft, 2.4) == pytest.approx(copies / 6, rel=1e-4)
    assert near_share(DraftCopies(EVEN), mixture, verify, 2.4) == 0
    # Beyond the copies there is room for experts of the target.
    others = 4.0 - 6 * 4.5 / 8.5
    assert near_share(DraftCopies(EVEN), mixture, verify, 4.0) == pytest.approx(others / 6, rel=1e-3)
    # A cache of whole experts holds both of each: its copies take 4.5 bits beside 8.5.
    for step in (draft, verify):
        assert near_share(ExpertCache(EVEN), mixture, step, 2.4) == pytest.approx(2.4 * 8.5 / 13.0 / 6, rel=1e-4)
    parts = {"workload": WORKLOAD, "footprint": WIDTHS}
    twice = held_with_draft(mixture, draft_cost=apart, **parts) - held_with_draft(
        mixture, draft_cost=COMPRESSED_COPY, **parts
    )
    kinds = 3 * (10 * 28 + 2 * 10 * 14 + 28 * 10 + 60 + 6 * 810 + 20) + 2 * 310 + 10
    assert float(twice) == pytest.approx(kinds * 4.5 / 8, rel=1e-3)


def test_a_draft_of_its_own_takes_room(mixture, small):
    own = DraftCost(architecture=small.replace(num_layers=1.0))
    _, verify = cycle_steps(own)
    held = separate_draft_bytes(workload=WORKLOAD, footprint=WIDTHS, draft_cost=own, with_table=False)
    # 4.5 bits of a layer (q, k, v, o, feed-forward, norms), the head and the last norm, but no table; 10 tokens' KV of 16 bits.
    weights = 10 * 28 + 2 * 10 * 14 + 28 * 10 + 3 * 210 + 20 + 310 + 10
    assert float(held) == pytest.approx(weights * 4.5 / 8 + 10 * 28 * 2)
    share = near_share(ExpertCache(EVEN), mixture, verify, 2.4, beside=float(held))
    assert share == pytest.approx(0.4, rel=1e-4)
    assert near_share(ExpertCache(EVEN), mixture, verify, 2.4) < 0.4

    @functools.partial(jax.jit, static_argnums=0)
    def cycle(placement, capacity):
        device = DEVICE.replace(memory=DEVICE.memory.replace(capacity_bytes=capacity), placement=placement)
        plan = chain_plan(2.0)
        return price(Case(device, mixture, workload=WORKLOAD, footprint=WIDTHS, draft=own), plan)

    # The target comes first: what it leaves is too small for the draft, which is read outside; with room it is not.
    tight, wide = (cycle(ExpertCache(EVEN), capacity) for capacity in (3e3, 1e6))
    assert float(tight.draft.cost.traffic_bytes[..., 1].sum()) > 0.5 * float(held)
    assert float(wide.draft.cost.traffic_bytes[..., 1].sum()) == 0
    assert float(tight.draft_s) > float(wide.draft_s)
    # One class after the other: the draft is priced as if it were alone.
    assert float(cycle(InOrder(), 3e3).draft.cost.traffic_bytes[..., 1].sum()) == 0
