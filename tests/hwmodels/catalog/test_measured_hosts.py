"""Files of measured machines: what they may say, and that steps are priced by it."""

import dataclasses

import jax
import pytest

from hwmodels import OPERATORS, Workload, catalog, decode_operators, step_cost, uniform_footprint
from hwmodels.analysis.design_point import leaf_names
from hwmodels.analysis.kernel_widths import kernel_remarks
from hwmodels.analysis.uncertainty.kernel_errors import step_interval
from hwmodels.catalog import EntryError
from hwmodels.catalog.device_entries import number_rules
from hwmodels.step.priced_steps import PricedStep

NUMBERS = {
    "matrix_unit.attention": {
        "launch_s": 5e-6,
        "pair_s": 1e-7,
        "score_s": 2e-9,
        "compute_efficiency": 0.3,
        "memory_efficiency": 0.4,
    },
    "matrix_unit.between": {
        "turn_s": 3e-5,
        "row_s": 1e-7,
        "norm_s": 4e-6,
        "element_s": 1e-9,
        "sample_s": 2e-6,
        "logit_s": 3e-9,
    },
    "matrix_unit.formats.float32": {
        "weight_bits": 32,
        "launch_s": 2e-6,
        "compute_efficiency": 0.7,
        "near_efficiency": 0.8,
        "far_efficiency": 0.3,
    },
    "matrix_unit.formats.bfloat16": {
        "weight_bits": 16,
        "launch_s": 3e-6,
        "compute_efficiency": 0.4,
        "near_efficiency": 0.5,
        "far_efficiency": 0.2,
    },
}

HEAD = """
title = "A measured machine"
peak_flops_per_s = { value = 9e10, source = "measured" }
compute_efficiency = { value = 1.0, source = "measured" }
operator_latency_s = { value = 2e-6, source = "measured" }
[memory]
bandwidth_bytes_per_s = { value = 9e10, source = "measured" }
efficiency = { value = 0.3, source = "measured" }
capacity_bytes = { value = 2e10, source = "measured" }
[matrix_unit]
kind = "measured_host"
overlap = { value = 1.0, source = "measured" }
cache_bytes = { value = 3e7, source = "measured" }
cache_sharpness = { value = 2.0, source = "measured" }
remarks = ["products: held-out error 12 %"]
"""

TAIL = """
[matrix_unit.formats.float32.row_costs]
weights = [100000, 10000000]
rows = [1, 2, 7, 8]
factors = [[0.5, 1.0, 1.3, 1.1], [0.6, 0.9, 1.2, 1.0]]
source = "measured"
[[matrix_unit.held_out]]
part = "steps"
bits = 32
low = 0.9
high = 1.3
coverage = 0.9
rows = 40
"""


def text(tail=TAIL, head=HEAD, numbers=NUMBERS):
    """A device's file."""
    lines = [head]
    for table, fields in numbers.items():
        lines += [
            f"[{table}]",
            *(f'{name} = {{ value = {value}, source = "measured" }}' for name, value in fields.items()),
        ]
    return "\n".join(lines) + tail


@pytest.fixture
def read(tmp_path):
    def read(content):
        path = tmp_path / "mine.toml"
        path.write_text(content, encoding="utf-8")
        return catalog.device_entry(str(path))

    return read


WORKLOAD = Workload(batch=1.0, context_tokens=100.0, prompt_tokens=90.0, output_tokens=20.0)


def test_a_file_says_it_all_and_steps_are_priced(read):
    entry = read(text())
    unit = entry.device.matrix_unit
    assert unit.weight_widths == (16.0, 32.0)
    assert unit.row_costs[0] is None
    assert unit.row_costs[1].factors[1] == (0.6, 0.9, 1.2, 1.0)
    assert unit.formats[1].near_efficiency == 0.8
    assert entry.sources["matrix_unit.formats.1.near_efficiency"] == "measured"
    assert set(number_rules(entry.device)) == set(leaf_names(entry.device))
    assert {name for name in leaf_names(entry.device) if name.startswith("matrix_unit")} <= set(entry.sources) | {
        "matrix_unit.attention.element_bytes",
        "matrix_unit.attention.slot_s",
    }

    work = decode_operators(catalog.architecture("llama-3.2-1b"), WORKLOAD, footprint=uniform_footprint(32.0))
    cost = jax.jit(step_cost)(entry.device, work)
    # By hand, down: 8192 x 2048 weights of 4 bytes in each of 16 layers, beyond the cache, in one row: factor 0.6; its
    # arithmetic and its traffic one after the other.
    read_bytes = float((work.weight_bytes + work.kv_bytes).sum())
    near = 1 / (1 + (read_bytes / 3e7) ** 2)
    one = 2 * 8192 * 2048 / (0.7 * 9e10) + (near / 0.8 + (1 - near) / 0.3) * (
        (4 * 8192 * 2048 + 2 * (8192 + 2 * 2048)) / 9e10
    )
    where = OPERATORS.index("down")
    assert float(cost.operator_s[where]) == pytest.approx(16 * 0.6 * (one + 2e-6), rel=1e-5)
    whole = step_interval(entry.device, PricedStep(work, cost))
    assert (whole.low_s, whole.high_s) == pytest.approx((0.9 * float(cost.total_s), 1.3 * float(cost.total_s)))


@pytest.mark.device_matrix
def test_narrower_weights_never_take_longer(read):
    """16 bits are multiplied as 32 where that is faster, and so are others; the remarks say which are not measured."""
    device = read(text()).device
    price = jax.jit(
        lambda bits: (
            step_cost(
                device,
                decode_operators(catalog.architecture("llama-3.2-1b"), WORKLOAD, footprint=uniform_footprint(bits)),
            ).total_s
        )
    )
    times = [float(price(bits)) for bits in (4.0, 8.0, 16.0, 20.0, 32.0)]
    assert times == sorted(times)
    said = kernel_remarks(device, uniform_footprint(8.0))
    assert said[0].startswith("extrapolated: weights of 8")
    assert said[-1] == "products: held-out error 12 %"


def test_without_row_costs_and_intervals(read):
    one = {name: fields for name, fields in NUMBERS.items() if "bfloat16" not in name}
    unit = read(text(tail="", numbers=one)).device.matrix_unit
    assert unit.row_costs == (None,)
    assert unit.spreads == ()
    bare = dataclasses.replace(unit, spreads=())
    assert bare == unit


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "overlap = { value = 1.0,",
            "overlap = { value = 1.5,",
            r"matrix_unit.overlap is 1.5; it must be a number in \[0, 1\]",
        ),
        ("[matrix_unit.formats.float32]\n", "[matrix_unit.formats.float32]\nfar = 3\n", "unknown key"),
        ("weight_bits = { value = 16,", "weight_bits = { value = 32,", "they must differ"),
        ("near_efficiency = { value = 0.5,", "near_efficiency = { value = 1.5,", r"formats.bfloat16.near_efficiency"),
        ("rows = [1, 2, 7, 8]", "rows = [1, 7, 2, 8]", "row_costs: rows are"),
        ("rows = [1, 2, 7, 8]", "rows = 1", "row_costs"),
        ('part = "steps"', 'part = "stairs"', "allowed: products"),
        ("low = 0.9", 'low = "0.9"', "held_out.0.low is '0.9'"),
        ("low = 0.9\n", "", "held_out.0 is"),
        ("low = 0.9", "low = 1e-300", "held_out.0.low is 1e-300"),
        ("coverage = 0.9", "coverage = 90", r"held_out.0.coverage is 90; it must be between 0 and 1, as 0.9 for 90 %"),
        ("coverage = 0.9", "coverage = 1", "held_out.0.coverage is 1; it must be between 0 and 1"),
        ("rows = [1, 2, 7, 8]", "rows = [nan, 2, 7, 8]", "row_costs: rows are"),
        ("rows = [1, 2, 7, 8]", "rows = [1, 2, 7, inf]", "row_costs: rows are"),
        ("low = 0.9", "low = 1.9", "held_out.0.low is 1.9; it must not exceed high, which is 1.3"),
        ('remarks = ["', 'remarks = [3, "', "list of sentences"),
        ("cache_bytes = { value = 3e7,", "cash_bytes = { value = 3e7,", "did you mean 'matrix_unit.cache_bytes'"),
    ],
)
def test_what_is_refused(read, old, new, message):
    content = text()
    assert old in content
    with pytest.raises(EntryError, match=message):
        read(content.replace(old, new, 1))
