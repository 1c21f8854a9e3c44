import numpy as np
import pytest

from hwmodels.catalog import UnknownNameError
from hwmodels.catalog.calibrated import (
    calibrated_attention,
    calibrated_gpu,
    calibrated_names,
    calibration_record,
    with_data_sheet,
)
from hwmodels.compute.gpu import gemm_time
from hwmodels.compute.gpu_attention import decode_attention_time


def test_names():
    assert set(calibrated_names()) >= {"a100-sxm", "h100-sxm", "h200-sxm", "l40s"}
    assert calibrated_gpu(" A100-SXM ").weight_widths == (4.0, 8.0, 16.0)
    with pytest.raises(UnknownNameError, match="did you mean 'l40s'"):
        calibrated_gpu("l40")


@pytest.mark.parametrize("name", calibrated_names())
def test_every_file_says_what_it_is_and_is_plausible(name):
    unit, record = calibrated_gpu(name), calibration_record(name)
    for entry in record["formats"].values():
        assert entry["status"] == "calibrated"
        assert entry["table"].startswith("aiconfigurator-core ")
        assert len(entry["standard_errors"]) + len(entry["at_bound"]) == 8
        held_out = entry["errors"]["half of the shapes, held out"]["mean"]
        assert held_out < min(simple["mean"] for simple in entry["baselines"].values())
    # 4096 x 4096 weights at one token: between the bandwidth's bound and four times it and 20 µs.
    for bits in unit.weight_widths:
        bound = 4096 * 4096 * bits / 8 / unit.bandwidth_bytes_per_s
        assert bound < float(gemm_time(unit, 1, 4096, 4096, weight_bits=bits)) < 4 * bound + 2e-5
    shape = {"batch": 1, "context_tokens": 1024, "num_kv_heads": 8, "head_dim": 128}
    assert 5e-6 < float(decode_attention_time(calibrated_attention(name), **shape)) < 4e-5


def test_bars():
    halves = lambda name, kind: np.mean(calibration_record(name)["formats"][kind]["held_out_halves"])
    assert halves("a100-sxm", "bfloat16") <= 0.063
    assert halves("a100-sxm", "int4_wo") <= 0.08
    assert halves("a100-sxm", "int8_wo") <= 0.07
    assert halves("h200-sxm", "bfloat16") <= 0.053


def test_sibling():
    l40s = calibrated_gpu("l40s")
    other = with_data_sheet(l40s, peak_flops_per_s=1.652e14, bandwidth_bytes_per_s=1.008e12, multiprocessors=128.0)
    assert other.coefficients is l40s.coefficients
    ratio = float(gemm_time(other, 1, 4096, 28672) / gemm_time(l40s, 1, 4096, 28672))
    assert ratio == pytest.approx(864 / 1008, rel=0.02)
