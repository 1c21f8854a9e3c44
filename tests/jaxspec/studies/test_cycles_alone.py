"""A machine of which whole cycles alone were held out: its cycles have intervals in every command, and its steps have none."""

import pytest

from hwmodels import Case, DraftCost, Workload, catalog, price_steps, uniform_footprint
from hwmodels.network.operators import prefill_step
from jaxspec.results import measured, predicted
from jaxspec.settings import build_config
from jaxspec.studies import ScaleConfig
from jaxspec.studies.engine_pricing import engine_terms
from jaxspec.studies.scale.planning import exchange_rows
from jaxspec.studies.scale.result import PlanRow

pytestmark = pytest.mark.study

REACH = 1.25

NUMBERS = {
    "": {"peak_flops_per_s": 9e10, "compute_efficiency": 1.0, "operator_latency_s": 2e-6},
    "memory": {"bandwidth_bytes_per_s": 9e10, "efficiency": 0.3, "capacity_bytes": 2e10},
    "matrix_unit": {"overlap": 1.0, "cache_bytes": 3e7, "cache_sharpness": 2.0},
    "matrix_unit.attention": {
        "launch_s": 5e-6,
        "pair_s": 1e-7,
        "score_s": 2e-9,
        "compute_efficiency": 0.3,
        "memory_efficiency": 0.4,
    },
    "matrix_unit.between": dict.fromkeys(("turn_s", "row_s", "norm_s", "element_s", "sample_s", "logit_s"), 1e-8),
    "matrix_unit.formats.float32": {
        "weight_bits": 32,
        "launch_s": 2e-6,
        "compute_efficiency": 0.7,
        "near_efficiency": 0.8,
        "far_efficiency": 0.3,
    },
    "engine_terms": {"cycle_s": 1e-4, "drafted_token_s": 1e-6},
}
HELD_OUT = f"""
[[matrix_unit.held_out]]
part = "cycles"
bits = 32
low = {1 / REACH}
high = {REACH}
coverage = 0.9
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Its file."""
    lines = ['title = "A measured machine"']
    for table, numbers in NUMBERS.items():
        lines += [f"[{table}]"] if table else []
        lines += ['kind = "measured_host"'] if table == "matrix_unit" else []
        lines += [f'{name} = {{ value = {value}, source = "measured" }}' for name, value in numbers.items()]
    path = tmp_path_factory.mktemp("machine") / "machine.toml"
    path.write_text("\n".join(lines) + HELD_OUT, encoding="utf-8")
    return str(path)


def test_answers_have_intervals_where_they_draft(machine):
    device = catalog.device_entry(str(machine)).device
    terms = engine_terms("jax", machine)
    pricing = Case(device, catalog.architecture("qwen2.5-0.5b"), Workload(), engine=terms)
    config = build_config(ScaleConfig, {"samples": "1,2", "context": 300, "batch": 1, "engine": "jax", "batches": "1"})
    one = PlanRow(model="m", samples=1, batch=1, passes=predicted(20.0), total_s=predicted(1.0), accuracy=measured(0.5))
    parts = {"rows": [one], "footprint": uniform_footprint(16.0), "draft": DraftCost(passes=0.0, statement="")}
    (drafted,) = exchange_rows(config, pricing, **parts, conditional=[1.0])
    assert drafted.draft_length.known == 1
    # Cycles scatter, the prompt before them does not.
    load = Workload(batch=1.0, prompt_tokens=300.0)
    (prefill,) = price_steps(device, pricing.architecture, [prefill_step(load, footprint=parts["footprint"])])
    total, ends = drafted.speculation_s.known, drafted.intervals.speculation_s
    share = 1 - float(prefill.cost.total_s) / total
    assert ends.low.known == pytest.approx(total / REACH**share, rel=1e-3)
    assert ends.high.known == pytest.approx(total * REACH**share, rel=1e-3)
    (plain,) = exchange_rows(config, pricing, **parts, conditional=[0.0])
    assert plain.draft_length.known == 0
    assert plain.intervals is None
