"""Devices from TOML: every optional part, and every way in which a part can be wrong."""

import pytest

from hwmodels import catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.analysis.design_point import leaf_names
from hwmodels.catalog import EntryError
from hwmodels.catalog.device_entries import number_rules, parse_device
from hwmodels.compute.systolic.array import SystolicArray
from hwmodels.compute.vector_array import Polynomial, VectorArray
from hwmodels.compute.weight_layouts import TileGroups
from hwmodels.decoders.decoder import DECODER_KINDS
from hwmodels.network.operators import StepShape


def number(value):
    return f'{{ value = {value}, source = "a guess for this test" }}'


def table(name, **fields):
    lines = [f"[{name}]" if name else ""]
    for key, value in fields.items():
        lines.append(f"{key} = {value if isinstance(value, str) else number(value)}")
    return "\n".join(lines) + "\n"


BASE = 'title = "Mine"\n' + table("", peak_flops_per_s=1e13, compute_efficiency=0.7, operator_latency_s=1e-6)
MEMORY = table("memory", bandwidth_bytes_per_s=5e10, efficiency=0.8, capacity_bytes=8e9, energy_j_per_bit=5e-12)
SPILL = "[[spill]]\n" + table(
    "", bandwidth_bytes_per_s=1e10, efficiency=0.9, capacity_bytes=6e10, energy_j_per_bit=4e-12
)
BUFFER = dict(bandwidth_bytes_per_s=1e12, access_bytes=4.0, access_energy_j=0.0)
SYSTOLIC = table(
    "matrix_unit", kind='"systolic_array"', dataflow='"os"', rows=12, columns=10, frequency_hz=1e9, mac_energy_j=0
) + ("".join(table(f"matrix_unit.{name}_buffer", **BUFFER) for name in ("input", "weight", "output")))
VECTOR = table(
    "matrix_unit", kind='"vector_array"', pe_rows=3, pe_columns=5, vector_macs=2, vector_width=7, frequency_hz=2e9
)
DECODER = table(
    "decoder",
    kind='"huffman_cam"',
    place='"array_edge"',
    frequency_hz=1e9,
    symbols_per_cycle=1,
    count=10,
    power_w=1e-3,
    area_m2=2e-9,
)
PATH = table("on_chip_path", buffer_bytes_per_s=7e11, link_bytes_per_s=5e11)
CHIP = table("chip", energy_j_per_flop=5e-13, static_power_w=0, area_m2=1e-5)


def test_all_parts_together():
    entry = parse_device(BASE + MEMORY + SYSTOLIC + DECODER + CHIP + SPILL + SPILL, where="mine.toml")
    device = entry.device
    assert isinstance(device.matrix_unit, SystolicArray)
    assert device.matrix_unit.dataflow == "os"
    assert device.matrix_unit.convention == "pipelined"
    assert device.matrix_unit.weight_buffer.access_bytes == 4
    assert len(device.spill) == 2
    assert device.spill[1].energy_j_per_bit == 4e-12
    assert (device.decoder.kind, device.decoder.place, device.decoder.count) == ("huffman_cam", "array_edge", 10)
    assert device.chip.area_m2 == 1e-5
    assert set(entry.sources.values()) == {"a guess for this test"}
    assert set(number_rules(device)) == set(leaf_names(device)) >= set(entry.sources)


def test_a_vector_array():
    device = parse_device(BASE + MEMORY + VECTOR, where="mine.toml").device
    assert isinstance(device.matrix_unit, VectorArray)
    assert device.matrix_unit.peak_flops_per_s == 2 * 15 * 14 * 2e9
    # 1 x 14 by 14 x 10 with 15 elements of 7 x 2: k takes 2, n takes 5 of them, or a grid of 3 x 5 laid over k and n.
    assert float(device.matrix_unit.product_time(1.0, 14.0, 10.0)) == pytest.approx(1 / 2e9)
    assert not number_rules(device)["matrix_unit.pe_rows"].holds(0.0)


NPU = (
    table("matrix_unit", kind='"matrix_vector_npu"', tile_rows=4, tile_depth=4, tile_columns=4, dma_bytes_per_s=1e10)
    + table("matrix_unit.vector", units=2, packets_per_s=1e9, register_scores=8, score_packets=3, row_packets=5)
    + table("matrix_unit.vector.layout", kind='"tile_groups"', group_weights=8, group_packets=6)
    + table("matrix_unit.vector.exponential", kind='"polynomial"', steps=7, step_packets=4)
)
HOST = table("matrix_unit.host", cores=2, peak_flops_per_s=1e10, bandwidth_bytes_per_s=1e10, power_w=1)


@pytest.mark.parametrize("host", ["", HOST])
def test_parts_of_several_kinds_and_parts_that_may_be_absent(host):
    entry = parse_device(BASE + MEMORY + NPU + host, where="mine.toml")
    unit = entry.device.matrix_unit
    assert unit.vector.layout == TileGroups(8.0, 6.0)
    assert unit.vector.exponential == Polynomial(7.0, 4.0)
    assert (unit.host is None) == (host == "")
    assert entry.sources["matrix_unit.vector.layout.group_packets"] == "a guess for this test"
    rules = number_rules(entry.device)
    assert set(rules) == set(leaf_names(entry.device)) >= set(entry.sources)
    assert not rules["matrix_unit.vector.layout.group_packets"].holds(0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            BASE + MEMORY + NPU.replace("tile_groups", "tile_group"),
            "matrix_unit.vector.layout.kind is 'tile_group'; did you mean 'tile_groups'.* allowed: coalesced, ",
        ),
        (BASE + MEMORY + NPU.replace('kind = "polynomial"\n', ""), "matrix_unit.vector.exponential.kind is None"),
        (
            BASE + MEMORY + NPU.replace('"tile_groups"', '"coalesced"'),
            "unknown key 'matrix_unit.vector.layout.group_weights'",
        ),
        (
            BASE + MEMORY + NPU.partition("[matrix_unit.vector.layout]")[0] + "layout = 3\n",
            "matrix_unit.vector.layout is 3; it must be a table",
        ),
        (BASE, "memory.bandwidth_bytes_per_s is missing; add .* and likewise memory.efficiency, memory.capacity_bytes"),
        (BASE + MEMORY + "size = 3\nrate = 4\n", "unknown key 'memory.size', 'memory.rate'"),
        (BASE + MEMORY + '[technology]\nnode_m = { value = 7, source = "7 nm" }\n', "node_m is 7; it must be .* 7 nm"),
        *[
            (text.replace(number(given), number(other)), f"{name} is {other}; it must be .*: {unit}")
            for text, given, other, name, unit in [
                (BASE + MEMORY, 5e10, 400, "memory.bandwidth_bytes_per_s", "400 GB/s are 400e9"),
                (BASE + MEMORY, 8e9, 32, "memory.capacity_bytes", "32 GB are 32e9"),
                (BASE + MEMORY, 5e-12, 5, "memory.energy_j_per_bit", "4 pJ are 4e-12"),
                (BASE + MEMORY, 1e13, 10.5, "peak_flops_per_s", "50 TFLOP/s are 50e12"),
                (BASE + MEMORY, 1e-6, 5, "operator_latency_s", "5 microseconds are 5e-6"),
                (BASE + MEMORY + VECTOR, 2e9, 1500, "matrix_unit.frequency_hz", "1.5 GHz are 1.5e9"),
                (BASE + MEMORY + CHIP, 1e-5, 800, "chip.area_m2", "800 mm2 are 8e-4"),
            ]
        ],
        (BASE + "memory = 3\n", "memory is 3; it must be a table"),
        (
            BASE + MEMORY + table("matrix_unit", kind='"systolic"'),
            "matrix_unit.kind is 'systolic'; did you mean 'systolic_array'",
        ),
        (BASE + MEMORY + "[matrix_unit]\nkind = ['fpga_array']\n", r"matrix_unit.kind is \['fpga_array'\]"),
        ("matrix_unit = 3\n" + BASE + MEMORY, "matrix_unit is 3; it must be a table"),
        (BASE + MEMORY + SYSTOLIC.replace('"os"', '"wos"'), "matrix_unit.dataflow is 'wos'; allowed: ws, os, is"),
        (BASE + MEMORY + VECTOR.replace("value = 7", "value = -11"), "matrix_unit.vector_width is -11"),
        (BASE + MEMORY + DECODER.replace("huffman_cam", "none"), "decoder.kind is 'none'; allowed: unary, mx"),
        (BASE + MEMORY + DECODER + "code_bits_per_cycle = 3\n", "decoder.code_bits_per_cycle is 3; it must be"),
        (BASE + MEMORY + "scratchpad_bytes = 3\n", "unknown key 'memory.scratchpad_bytes'"),
        ("spill = 3\n" + BASE + MEMORY, r"spill is 3; write \[\[spill\]\]"),
        (BASE + MEMORY + "coupled = 1\n", "memory.coupled is 1; it must be true or false"),
        (BASE + MEMORY + PATH.replace("value = 700000000000.0", "value = 0"), "on_chip_path.buffer_bytes_per_s is 0"),
        (BASE + MEMORY + "[on_chip_path]\n", "on_chip_path.buffer_bytes_per_s is missing"),
        ('schedule = "none"\n' + BASE + MEMORY, "schedule is 'none'; allowed: overlapped, serial"),
        ("x = " + "[" * 10_000, "not valid TOML"),
    ],
)
def test_faults_are_named_in_one_line(text, message):
    with pytest.raises(EntryError, match=message) as caught:
        parse_device(text, where="mine.toml")
    assert str(caught.value).startswith("mine.toml: ")
    assert "\n" not in str(caught.value)


def without(text, key):
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(f"{key} ="))


@pytest.mark.device_matrix(3)
@pytest.mark.parametrize("kind", [kind for kind in DECODER_KINDS if kind != "none"])
def test_no_decoder_is_infinitely_fast(kind):
    text = BASE + MEMORY + without(DECODER, "symbols_per_cycle").replace("huffman_cam", kind)
    if kind == "huffman_cam":
        # One codeword per cycle and unit: 10 units at 1 GHz take 10 values per nanosecond.
        entry = parse_device(text, where="mine.toml")
        assert entry.device.decoder.symbols_per_cycle == 1.0
        assert entry.sources["decoder.symbols_per_cycle"].startswith("derived: ")
        work = step_operators(
            catalog.architecture("embedded"),
            StepShape(tokens=3.0, batch=2.0, context_tokens=50.0, weight_bits=uniform_weight_bits(5.0), kv_bits=16.0),
        )
        total = float(step_cost(entry.device, work).decoding_s.sum())
        assert total == pytest.approx(float(work.coded_elements.sum()) / 10 / 1e9, rel=1e-5)
        assert total > 0
        return
    with pytest.raises(
        EntryError, match=f"^mine.toml: decoder.symbols_per_cycle is missing.*{kind}.*infinitely fast; add"
    ):
        parse_device(text, where="mine.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (without(MEMORY, "energy_j_per_bit") + CHIP, "memory.energy_j_per_bit is missing"),
        (MEMORY + CHIP + SPILL + without(SPILL, "energy_j_per_bit"), "spill.1.energy_j_per_bit is missing"),
        (MEMORY + CHIP + without(DECODER, "area_m2"), "decoder.area_m2 is missing"),
        (MEMORY + CHIP + without(DECODER, "power_w"), "decoder.power_w or decoder.symbol_energy_j is missing"),
    ],
)
def test_nothing_of_a_chip_is_free(text, message):
    with pytest.raises(EntryError, match=f"^mine.toml: {message}; .*this would be free: add .*or leave out"):
        parse_device(BASE + text, where="mine.toml")
    # Said to be nothing, or where no energy is reported, it may be.
    parse_device(BASE + text.replace(CHIP, ""), where="mine.toml")
    parse_device(BASE + MEMORY.replace("5e-12", "0") + CHIP, where="mine.toml")
