"""Machines of the papers by name: their printed sizes, what bounds them, and where decoders may sit."""

import jax
import pytest

from hwmodels import OPERATORS, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.analysis.design_point import chip_area
from hwmodels.decoders.decoder import decoders_needed
from hwmodels.network.operators import StepShape

MM2, UM2 = 1e-6, 1e-12
LLAMA = catalog.architecture("llama-3.1-8b")
#: Huff-LLM's Llama weights, and those of Cassandra's default draft.
HUFFMAN_BITS, DRAFT_BITS = 10.9, 5.11

step = jax.jit(
    lambda device, tokens, bits: step_cost(
        device,
        step_operators(
            LLAMA,
            StepShape(
                tokens=tokens, batch=1.0, context_tokens=900.0, weight_bits=uniform_weight_bits(bits), kv_bits=16.0
            ),
        ),
    )
)


def bound_of(device, tokens, bits, operator="gate_up"):
    """What the largest product of a step waits for."""
    cost, place = step(device, tokens, bits), OPERATORS.index(operator)
    causes = {name: float(getattr(cost, f"{name}_s")[place]) for name in ("compute", "memory", "decoding", "on_chip")}
    return max(causes, key=causes.get)


def changed(device, part, **numbers):
    return device.replace(**{part: getattr(device, part).replace(**numbers)})


def test_table_v_adds_up_to_the_npus_area():
    npu = catalog.device("cassandra-npu")
    assert float(chip_area(npu)) / MM2 == pytest.approx(64.8 + 2.4 + 24.1 + 0.24 + 0.08 + 1.76, rel=1e-3)
    array, decoder = npu.matrix_unit, npu.decoder
    assert array.elements == 32768
    assert array.peak_flops_per_s == pytest.approx(npu.peak_flops_per_s, rel=0.03)  # 65.5 of 64 TFLOPS
    # A row of weights per cycle is what the scratchpad delivers, and what the decoders put out.
    assert 2 * array.columns == 1024
    assert decoders_needed(decoder, 1024, 5.0) == decoder.count == 40
    busy_w = array.elements * array.frequency_hz * array.mac_energy_j
    assert busy_w == pytest.approx(12.45, rel=0.03)


@pytest.mark.parametrize("name", ["huffllm-ws", "huffllm-os"])
def test_huffllms_arrays_are_those_of_its_table(name):
    device = catalog.device(name)
    array = device.matrix_unit
    assert (array.rows, array.columns, array.frequency_hz, array.dataflow) == (128, 128, 1e9, name[-2:])
    sizes = (array.weight_buffer, array.input_buffer, array.output_buffer)
    assert [one.capacity_bytes / 1024 for one in sizes] == [16, 8, 4]
    assert array.elements * array.frequency_hz == pytest.approx(16e12, rel=0.03)  # "16 TOPS"
    # Three decoders per column over elements of 484 um2: the introduction's "less than 6 %".
    assert device.decoder.total_area_m2 / (array.elements * 484 * UM2) == pytest.approx(0.0581, abs=1e-4)
    # A column's decoder puts out a weight per cycle, which is as fast as the array takes them.
    assert device.decoder.count == array.columns


def test_each_machine_is_bound_by_memory_array_or_decoders():
    ws, npu = catalog.device("huffllm-ws"), catalog.device("cassandra-npu")
    assert bound_of(ws, 1.0, HUFFMAN_BITS) == "memory"
    # Twice the array's intake of 256 GB/s; and a prompt, whose rows outlast a fold's load.
    assert bound_of(changed(ws, "memory", bandwidth_bytes_per_s=512e9), 1.0, 16.0) == "compute"
    assert bound_of(ws, 512.0, HUFFMAN_BITS) == "compute"
    assert bound_of(changed(ws, "decoder", count=64.0), 1.0, HUFFMAN_BITS) == "decoding"
    assert bound_of(npu, 1.0, DRAFT_BITS) == "memory"
    assert bound_of(changed(npu, "decoder", count=30.0), 1.0, DRAFT_BITS) == "decoding"
    assert (
        bound_of(npu, 1.0, 3.5) == "compute"
    )  # the array takes weights in as fast as the decoders put them out, and fills
    small, large = catalog.device("huffllm-simba"), catalog.device("huffllm-simba-256")
    assert bound_of(small, 92.0, HUFFMAN_BITS) == "compute"
    assert bound_of(large, 92.0, HUFFMAN_BITS) == "memory"


def test_the_place_of_decoders_on_a_gpu_changes_a_draft_step():
    gpu, times = catalog.device("cassandra-gpu"), {}
    for place in ("dma", "l2", "array_edge"):
        times[place] = float(step(changed(gpu, "decoder", place=place), 1.0, DRAFT_BITS).total_s)
    assert times["dma"] > 1.2 * times["l2"]
    assert times["l2"] == pytest.approx(times["array_edge"], rel=1e-3)  # the links carry 16 bits, and are not full
    plain = float(step(catalog.device("rtx-4090"), 1.0, DRAFT_BITS).total_s)
    assert times["l2"] == pytest.approx(plain, rel=1e-2)
    # Sixteen bits are as wide anywhere.
    wide = [float(step(changed(gpu, "decoder", place=place), 1.0, 16.0).total_s) for place in ("dma", "l2")]
    assert wide[0] == wide[1]
    assert gpu.decoder.count == decoders_needed(gpu.decoder, 5e12 / 2.52e9, 5.0, partitions=12)
