import importlib.util
import json
import sys
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
from kernel_samples import attention_columns, gemm_columns, prefill_columns, write_tables

from hwmodels.analysis.calibration.attention import predict_attention
from hwmodels.analysis.calibration.gemm import predict_gemm
from hwmodels.analysis.calibration.kernel_tables import DataSheet
from hwmodels.catalog.calibrations import calibration_record
from hwmodels.compute.gpu_attention import GpuAttention, GpuPrefill, prefill_attention_time

pytestmark = pytest.mark.device_matrix

silicon = importlib.import_module("experiments.silicon.__main__")

SHEET = DataSheet(3e14, 2e12, 101.0)
GEMM = {
    "launch_s": 3e-6,
    "memory_efficiency": 0.8,
    "compute_efficiency": 0.85,
    "operand_cost": 40.0,
    "wave_rounding": 0.4,
    "split_s": 2e-6,
    "sag_exponent": 0.04,
    "row_cost": 0.1,
}
ATTENTION = {
    "launch_s": 9e-6,
    "depth_s": 6e-7,
    "memory_efficiency": 0.85,
    "ramp": 0.8,
    "ramp_s": 3e-5,
    "pair_s": 1e-8,
    "cache_bytes": 5e7,
    "cache_speed": 2.5,
    "cache_sharpness": 6.0,
}
PREFILL = GpuPrefill(3e-6, 0.7, 90.0, 65.0, 2e-8, 0.6)


@pytest.fixture
def tables(tmp_path):
    sheet = vars(SHEET)
    gemm = gemm_columns(lambda m, k, n: np.asarray(predict_gemm("bfloat16")(GEMM, {"m": m, "k": k, "n": n, **sheet})))
    heads = {"head_dim": 128.0} | {name: sheet[name] for name in ("bandwidth_bytes_per_s", "multiprocessors")}
    attention = attention_columns(
        lambda b, s, h: predict_attention()(ATTENTION, {"batch": b, "context_tokens": s, "num_kv_heads": h, **heads})
    )
    unit, peak = GpuAttention(SHEET.bandwidth_bytes_per_s, **ATTENTION), SHEET.peak_flops_per_s
    prefill = prefill_columns(
        lambda b, s, h: prefill_attention_time(
            PREFILL, unit, batch=b, tokens=s, num_heads=32.0, num_kv_heads=h, head_dim=128.0, peak_flops_per_s=peak
        )
    )
    return write_tables(tmp_path, gemm, attention, prefill=prefill)


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["silicon", *map(str, arguments)])
    return silicon.main()


def test_a_gpu_that_nobody_named(tables, monkeypatch, capsys, tmp_path):
    before = {path: path.read_text() for path in silicon._CATALOG_FOLDER.rglob("*.toml")}
    target = tmp_path / "out.json"
    options = ("--gpu", "toy/engine/1.0", "--tables", tables, "--multiprocessors", 101, "--json", target)
    assert run(monkeypatch, *options, "--out", tmp_path / "plots") == 0
    result = json.loads(target.read_text())
    entry = result["gpus"]["toy/engine/1.0"]
    assert entry["formats"]["bfloat16"]["errors"]["half of the shapes, held out"]["mean"] < 0.01
    decoding = entry["attention"]["bfloat16"]
    assert decoding["errors"]["held out"]["mean"] < 0.02
    assert decoding["coefficients"]["launch_s"] == pytest.approx(9e-6, rel=0.02)
    assert entry["prefill"]["errors"]["held out"]["mean"] < 0.05
    assert len(list((tmp_path / "plots").glob("*.png"))) == 1
    said = capsys.readouterr().out
    assert "toy/engine/1.0 bfloat16" in said
    # Nothing of GPUs that nobody asked for.
    assert not any(name in said for name in ("a100", "l40s", "Llama"))
    assert result["decode"] == []
    assert before == {path: path.read_text() for path in silicon._CATALOG_FOLDER.rglob("*.toml")}


def test_a_decoding_step_of_the_catalog():
    checks = silicon.decode_checks(["a100-sxm"])
    packed = next(c for c in checks if c["batch"] == 1 and c["gpu"] == "a100-sxm, trtllm")
    assert 1.7 < packed["speedup_4_bits"] < 2.1
    assert {check["gpu"].split(", ")[0] for check in checks} == {"a100-sxm"}


def test_experts_alone_leave_the_rest_of_a_file(monkeypatch, tables, tmp_path, capsys):
    folder, before = tmp_path / "catalog", calibration_record("l40s", "vllm")
    folder.mkdir()
    monkeypatch.setattr(silicon, "_experts", lambda *of_what: {})
    monkeypatch.setattr(silicon.CATALOG["l40s"].__class__, "formats", lambda *arguments: {"bfloat16": "0.24.0"})
    report = SimpleNamespace(to_markdown=lambda: "fitted")
    fitted = SimpleNamespace(record={"weight_bits": 16.0}, report=report)
    monkeypatch.setattr(silicon, "fit_sources", lambda *arguments, **options: {"bfloat16": fitted})
    monkeypatch.setattr(silicon, "_CATALOG_FOLDER", folder)
    assert run(monkeypatch, "--gpu", "l40s/vllm", "--experts") == 0
    after = tomllib.loads((folder / "l40s" / "vllm.toml").read_text())
    assert after == before | {"experts": {"bfloat16": {"weight_bits": 16.0}}}
    assert list(after)[:4] == list(before)[:4]
    assert run(monkeypatch, "--gpu", "toy/engine/1.0", "--tables", tables, "--experts") == 2
    assert "nothing to fit: no table of experts for toy/engine/1.0" in capsys.readouterr().err
