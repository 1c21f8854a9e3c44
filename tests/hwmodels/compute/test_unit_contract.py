"""What every compute unit keeps to, whichever it is: the registry is the list, and the roofline is the default."""

import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from narrow_devices import kernels_of_16_bits

from hwmodels import OPERATORS, Chip, Device, MemoryTier, catalog, step_operators, uniform_weight_bits
from hwmodels.catalog.units import UNITS
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.measured_host import Between, HostAttention, HostProducts, MeasuredHost
from hwmodels.compute.roofline import unit_of
from hwmodels.compute.row_costs import RowCosts
from hwmodels.compute.systolic.array import OnChipBuffer
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.vector_array import VectorArray

#: No size divides another, so that tiles are partly filled.
SMALL = Device(
    peak_flops_per_s=9e12,
    compute_efficiency=0.8,
    memory=MemoryTier(bandwidth_bytes_per_s=3e11, efficiency=0.9, capacity_bytes=5e9, energy_j_per_bit=4e-12),
    spill=(MemoryTier(bandwidth_bytes_per_s=5e10, efficiency=0.7, capacity_bytes=9e9, energy_j_per_bit=9e-12),),
    operator_latency_s=2e-6,
)
BUFFERS = (OnChipBuffer(1e12, 4.0, 3e-12), OnChipBuffer(2e12, 8.0, 5e-12), OnChipBuffer(3e12, 2.0, 2e-12))
#: Two formats; a step from one row to two, and another of eight rows.
HOST = MeasuredHost(
    formats=(HostProducts(3e-6, 0.4, 0.5, 0.2), HostProducts(2e-6, 0.7, 0.8, 0.3)),
    weight_widths=(11.0, 32.0),
    row_costs=(None, RowCosts((1e5, 1e7), (1.0, 2.0, 7.0, 8.0), ((0.5, 1.0, 1.0, 1.1), (0.6, 0.9, 1.2, 1.3)))),
    cache_bytes=3e7,
    cache_sharpness=2.0,
    attention=HostAttention(5e-6, 1e-7, 2e-9, 0.3, 0.4),
    between=Between(3e-5, 1e-7, 4e-6, 1e-9, 2e-6, 3e-9),
)
CHIP = Chip(energy_j_per_flop=5e-13, static_power_w=2.0, area_m2=1e-5)


def first_devices():
    """Kind of matrix unit -> the catalog's first device that has it."""
    found = {}
    for name in catalog.device_names():
        file = Path(catalog.__file__).with_name("devices") / f"{name}.toml"
        if unit := tomllib.loads(file.read_text(encoding="utf-8")).get("matrix_unit"):
            found.setdefault(unit["kind"], catalog.device(name))
    return found


#: Kind -> a device that computes with it: the catalog's, or a small one where the catalog has none.
DEVICES = {
    "roofline": SMALL,
    "systolic_array": SMALL.replace(matrix_unit=SystolicUnit(12.0, 10.0, 1e9, 7e-13, *BUFFERS)),
    "vector_array": SMALL.replace(matrix_unit=VectorArray(3.0, 5.0, 6.0, 7.0, 2e9)),
    "measured_host": SMALL.replace(matrix_unit=HOST),
    **first_devices(),
}


def work_of(tokens=5.0, batch=2.0, context=777.0, weight_bits=9.7, growth=1.0):
    """A step of a network, with each of its sizes times `growth`."""
    network = catalog.architecture("llama-3.2-1b")
    network = network.replace(
        hidden_size=network.hidden_size * growth,
        intermediate_size=network.intermediate_size * growth,
        num_heads=network.num_heads * growth,
        vocab_size=network.vocab_size * growth,
    )
    return step_operators(
        network,
        tokens=tokens,
        batch=batch,
        context_tokens=context,
        weight_bits=uniform_weight_bits(weight_bits),
        kv_bits=12.3,
    )


def times(device, work, temperature):
    """Times by each of the unit's kernels, which are asked one by one."""
    found = unit_of(device).kernels(work)
    return [kernel.operator_times(read, device, temperature=temperature) for kernel, read in found]


works = jax.jit(work_of)


@pytest.fixture(scope="module", params=DEVICES)
def whole(request):
    return DEVICES[request.param]


@pytest.fixture(scope="module")
def device(whole):
    """With one kernel of products where there is one for each width: they are alike, and each takes long to compile."""
    return kernels_of_16_bits(whole) if isinstance(whole.matrix_unit, CalibratedGpu) else whole


@pytest.fixture(scope="module")
def run():
    """`times`, compiled once for all tests of a kind; `traces` counts how often it was."""
    traces = []

    def counted(*arguments):
        traces.append(arguments)
        return times(*arguments)

    # A wrapper, since compiled functions take no attributes.
    compiled = jax.jit(counted)
    call = lambda *arguments: compiled(*arguments)
    call.traces = traces
    return call


def test_every_registered_kind_is_here():
    assert DEVICES.keys() == {*UNITS, "roofline"}


def test_it_says_what_it_is(whole):
    unit = unit_of(whole)
    for text in (unit.short_title, unit.title, unit.unpacking):
        assert text.strip() == text != ""
        assert "\n" not in text
    assert unit.unpacking.endswith(".")
    assert unit.elements is None or unit.elements > 0
    remarks = [unit.growth_remarks(memories=n, experts=some) for n in (1, 2) for some in (False, True)]
    assert remarks[0] == []  # with one memory, and without experts, more never takes less
    assert all(text.partition(":")[0] in ("experts", "places") for said in remarks for text in said)
    if unit.measured is not None:
        widths = unit.measured.weight_widths
        assert widths == tuple(sorted(set(widths)))


def test_times_shares_and_energies_are_in_their_ranges(run, device):
    for temperature in (0.0, 0.4, 1.0):
        for work in (works(), works(tokens=1.0, batch=1.0, weight_bits=3.1), works(tokens=333.0, weight_bits=16.0)):
            for one in run(device, work, temperature):
                for seconds in (one.compute_s, one.launch_s):
                    assert np.all(np.isfinite(seconds))
                    assert np.all(np.asarray(seconds) >= 0)
                assert np.all(np.asarray(one.compute_s)[np.asarray(work.flops) > 0] > 0)
                assert len(one.memory_share) == 1 + len(device.spill)
                assert all(np.all((np.asarray(share) > 0) & (np.asarray(share) <= 1)) for share in one.memory_share)
                assert 0 <= one.overlap_temperature <= 1


def test_energy_is_known_where_there_is_a_chip(run, device):
    work = works()
    assert all(one.energy_j is None for one in run(device.replace(chip=None), work, 0.0))
    for one in run(device.replace(chip=CHIP), work, 0.0):
        assert one.energy_j is None or np.all(np.isfinite(one.energy_j) & (np.asarray(one.energy_j) >= 0))


def test_more_work_never_takes_less(run, device):
    more = [{"tokens": 6.0}, {"tokens": 40.0}, {"batch": 2.5}, {"batch": 70.0}, {"context": 900.0}, {"growth": 1.3}]
    for temperature in (0.0, 0.7):
        before = run(device, works(), temperature)
        for changes in more:
            after = run(device, works(**changes), temperature)
            for one, other in zip(before, after, strict=True):
                assert np.all(np.asarray(other.compute_s) >= np.asarray(one.compute_s) * (1 - 1e-5)), changes


def test_kernels_share_an_operator(whole):
    work, unit = works(), unit_of(whole)
    kernels = unit.kernels(work)
    assert all(len(kernel.kernels(read)) == 1 for kernel, read in kernels)
    total_s = np.random.default_rng(0).uniform(1, 2, (*work.flops.shape, len(kernels))).astype(np.float32)
    shares = np.asarray(unit.kernel_shares(work, jnp.asarray(total_s)))
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-6)
    assert np.all(shares >= 0)


def changed(device, factor=1.03, step=0.007):
    """Other values of the same tree: each number of the device times one of its own."""
    leaves, treedef = jax.tree.flatten(device)
    return treedef.unflatten([leaf * (factor + step * i) for i, leaf in enumerate(leaves)])


def test_new_values_are_not_traced_again(run, device):
    before = run(device, works(), 0.0)
    traced = len(run.traces)
    after = run(changed(device), works(tokens=7.0, weight_bits=4.4), 0.3)
    assert len(run.traces) == traced > 0
    assert np.any(np.asarray(before[0].compute_s) != np.asarray(after[0].compute_s))


def test_a_batch_of_devices_and_works_is_what_each_of_them_gives(run, device):
    pairs = [(device, works(), 0.3), (changed(device, 0.9), works(tokens=9.0), 0.8)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float32) for leaf in leaves]), *pairs)
    mapped = jax.jit(jax.vmap(times))(*stacked)
    for i, pair in enumerate(pairs):
        for alone, found in zip(jax.tree.leaves(run(*pair)), jax.tree.leaves(mapped), strict=True):
            np.testing.assert_allclose(found[i], alone, rtol=1e-4)


def test_gradient(x64, device):
    """Along random directions over all numbers of the device, against differences; counts relaxed, so that none has steps."""
    leaves, treedef = jax.tree.flatten(changed(device.replace(chip=CHIP)))
    centre, rng = jnp.asarray(leaves, float), np.random.default_rng(1)
    weights = rng.uniform(0.5, 1.5, len(OPERATORS))
    work = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), works())

    @jax.jit
    @jax.value_and_grad
    def slopes(factors):
        # Kernels of one unit differ in their numbers alone: one is enough to trace and compile.
        scaled = treedef.unflatten(list(centre * factors))
        kernel, read = unit_of(scaled).kernels(work)[0]
        found = kernel.operator_times(read, scaled, temperature=1.0)
        return sum(jnp.sum(weights * jnp.log(jnp.where(leaf > 0, leaf, 1.0))) for leaf in jax.tree.leaves(found))

    _, gradient = slopes(jnp.ones_like(centre))
    assert np.all(np.isfinite(gradient))
    for direction in rng.standard_normal((3, len(leaves))):
        above, below = (slopes(1 + sign * 1e-4 * direction)[0] for sign in (1, -1))
        assert gradient @ direction == pytest.approx(float(above - below) / 2e-4, rel=1e-2, abs=1e-3)
