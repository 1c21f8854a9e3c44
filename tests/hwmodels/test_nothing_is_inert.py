"""Every number of every device and workload moves a reported result: what cannot be used is not asked for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from narrow_devices import one_of_each_unit

from hwmodels import (
    ALL_LAYER_MATRICES,
    Acceptance,
    Case,
    Chip,
    Footprint,
    OnChipPath,
    Workload,
    best,
    catalog,
    chip_bill,
    priced_chains,
    uniform_weight_bits,
)
from hwmodels.analysis.design_point import chip_area, design_point, leaf_names, priced_steps
from hwmodels.compute.roofline import unit_of
from hwmodels.compute.systolic.array import OnChipBuffer
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.vector_array import VectorArray
from hwmodels.decoders import Decoder, Encoder
from hwmodels.decoders.decoder import PLACES
from hwmodels.device import Superblocks
from hwmodels.numerics.scalars import as_float

#: With experts in half of its layers and wide matrices in the others, and too large for the smaller memories.
NETWORK = catalog.architecture("qwen3-30b-a3b").replace(num_moe_layers=24.0, intermediate_size=12288.0)
FOOTPRINT = Footprint(
    draft_weight_bits=uniform_weight_bits(5.3, ALL_LAYER_MATRICES),
    target_weight_bits=uniform_weight_bits(12.9, ALL_LAYER_MATRICES),
    draft_kv_bits=6.85,
    target_kv_bits=10.85,
)
WORKLOAD = Workload(batch=3.0, context_tokens=5000.0, prompt_tokens=130.0, output_tokens=70.0)
#: Keys and values of a layer that fit into a second-level cache, and are read at the memory's own rate; in part; hardly.
CONTEXTS = (5000.0, 15000.0, 60000.0)
DEVICE = catalog.device("rtx-4090")
BUFFER = OnChipBuffer(bandwidth_bytes_per_s=1e12, access_bytes=4.0, access_energy_j=1e-12)


def systolic():
    device = catalog.device("cassandra-npu-roofline")
    array = SystolicUnit(13.0, 11.0, 1e9, 1e-12, BUFFER, BUFFER, BUFFER)
    return device.replace(matrix_unit=array, chip=device.chip.replace(element_area_m2=1e-10))


def waiting():
    """A memory that lets accesses wait, beside one whose ramp is measured, and decoders limited by what they parse."""
    device = catalog.device("elmoe3d-hb8")
    memory = device.memory.replace(access_latency_s=2e-7, outstanding_accesses=3.0)
    spill = device.spill[0].replace(given_half_bytes=4e3)
    decoder = Decoder(
        1e9, symbols_per_cycle=2.0, code_bits_per_cycle=17.0, count=900.0, latency_cycles=7.0, kind="unary"
    )
    decoder = decoder.replace(area_m2=1e-9, power_w=1e-3, symbol_energy_j=1e-13)
    chip = Chip(energy_j_per_flop=1e-12, static_power_w=3.0, area_m2=9e-5, element_area_m2=4e-10)
    return device.replace(memory=memory.replace(capacity_bytes=1e9), spill=(spill,), decoder=decoder, chip=chip)


def on_the_way():
    """A scratchpad and links that decoded values pass, about as slow as the memory, and an encoder of keys and values."""
    path = OnChipPath(buffer_bytes_per_s=6e11, link_bytes_per_s=4e11, link_energy_j_per_bit=2e-13)
    encoder = Encoder(1e9, values_per_cycle=0.1, count=2.0, area_m2=1e-8, power_w=1e-2, value_energy_j=1e-12)
    return catalog.device("cassandra-npu-roofline").replace(
        on_chip_path=path, encoder=encoder, superblocks=Superblocks(16.0)
    )


#: What is put for 0, by a number's name, or by the dimension in it: large enough to show, and small enough to hide nothing.
FOR_ZERO = {"block_byte_s": 1e-11, "host_s": 1e-5, "host_rows_s": 1e-5, "cache_bytes": 1e5}
FOR_ZERO |= {"s": 1e-7, "j": 1e-12, "bit": 1e-12, "cycles": 5.0, "w": 1e-2, "m2": 1e-9}

DEVICES = {name: lambda name=name: catalog.device(name) for name in ("adreno-750", *one_of_each_unit())} | {
    "systolic array": systolic,
    "vector array": lambda: catalog.device("rtx-4090").replace(matrix_unit=VectorArray(4.0, 3.0, 8.0, 7.0, 2e9)),
    "accesses that wait": waiting,
    "paths on the chip": on_the_way,
}


def results_of_a_device(device, workload):
    """Times by cause and energies of the steps, memory and area: what all other results of reports are made of.

    Fewer than reports print, which only finds more: a number that moves these moves a result. Each further result prices
    the steps again, and compiling that takes as long.
    """
    capacity_bytes = sum(as_float(tier.capacity_bytes) for tier in device.tiers)
    bill = None if device.technology is None else chip_bill(device)
    return [*_of_steps(device, workload), capacity_bytes, chip_area(device), bill]


def results_of_a_workload(workload):
    """Times by cause, energies and memory of the steps, and what chains make of them."""
    case = Case(DEVICE, NETWORK, workload, FOOTPRINT)
    acceptance = Acceptance(conditional=jnp.array([0.9, 0.8, 0.7]))
    speeds = priced_chains(case, acceptance, temperature=0.3).result
    point = design_point(case, speeds)
    return [best(speeds), point, *_of_steps(DEVICE, workload)]


def _of_steps(device, workload):
    # Smooth, so that nothing hides behind a maximum or a count of tiles.
    steps = priced_steps(Case(device, NETWORK, workload=workload, footprint=FOOTPRINT), 2.0, temperature=0.3)
    costs = [step.cost for step in vars(steps).values()]
    return [costs, [cost.total_s for cost in costs]]


@functools.partial(jax.jit, static_argnames=("treedef", "of"))
def evaluated(values, context_tokens, treedef, of):
    """Results of many trees, "tree result"; trees of one structure share the program."""
    workload = WORKLOAD.replace(context_tokens=context_tokens)

    def one(values):
        tree = treedef.unflatten(list(values))
        found = results_of_a_device(tree, workload) if of == "device" else results_of_a_workload(tree)
        return jnp.concatenate([jnp.ravel(x).astype(float) for x in jax.tree.leaves(found)])

    return jax.lax.map(one, values)


def inert(tree, of):
    """Names of the leaves that no result depends on: each is moved by itself, all others being off their defaults."""
    leaves, treedef = jax.tree.flatten(tree)
    names = leaf_names(tree)
    base = [
        # A share of a bandwidth stays one: above 1 the bandwidth itself would count instead. The head's 16 bits stay unpacked.
        float(leaf) * (0.9 if name.endswith("memory_efficiency") or leaf == 16 else 1.01 + 0.003 * i)
        if leaf
        else FOR_ZERO.get(name.rpartition(".")[2], FOR_ZERO.get(name.rpartition("_")[2], 1.0))
        for i, (name, leaf) in enumerate(zip(names, leaves, strict=True))
    ]
    base = np.where(np.isinf(base), 20.0, base)
    varied = np.vstack([base * factor ** np.eye(base.size) for factor in (1.4, 1 / 1.4)])
    values, changed = jnp.asarray(np.vstack([base, varied])), np.zeros(base.size, bool)
    for context in CONTEXTS if of == "device" else CONTEXTS[:1]:
        found = evaluated(values, context, treedef, of)
        changed |= np.any(np.abs(found[1:] - found[:1]) > 1e-9 * np.abs(found[:1]), axis=-1).reshape(2, -1).any(axis=0)
    return [name for name, moved in zip(names, changed, strict=True) if not moved]


@pytest.mark.device_matrix("adreno-750")
@pytest.mark.parametrize("name", DEVICES)
def test_every_number_of_a_device_moves_a_result(name, x64):
    # A chip's area of elements needs a unit that has some.
    device = DEVICES[name]()
    assert device.chip is None or device.chip.element_area_m2 is None or unit_of(device).elements is not None
    if unit_of(device).measured is not None:
        # Remarks are static: without them, devices of as many formats share a program.
        device = device.replace(matrix_unit=device.matrix_unit.replace(remarks=()))
    # A unit with a clock of its own does not ask for the technology's, which has a default.
    clock = {"technology.frequency_hz"} if device.technology is not None and device.matrix_unit is not None else set()
    assert set(inert(device, "device")) == clock


@pytest.mark.device_matrix
def test_every_number_of_a_workload_moves_a_result(x64):
    assert inert(WORKLOAD, "workload") == []


@pytest.mark.device_matrix
def test_the_place_of_a_decoder_says_what_an_arrays_buffers_hold():
    device, energies = systolic(), {}
    for place in PLACES:
        there = device.replace(decoder=device.decoder.replace(place=place))
        steps = jax.jit(
            lambda device: priced_steps(Case(device, NETWORK, workload=WORKLOAD, footprint=FOOTPRINT), 2.0)
        )(there)
        energies[place] = float(steps.draft.cost.energy.arithmetic_j)
    # Behind the weight buffer, it holds 5.3 bits of a weight; before it, 16.
    assert energies["array_edge"] == energies["l2"] < 0.99 * energies["dma"]
