"""Rows of any engine, precision and device: each with its own kernels and terms, or a sentence on what is not measured."""

import dataclasses

import numpy as np
import pytest

from experiments.field.__main__ import answers
from experiments.field.engines import engine_of
from experiments.field.fit import kinds_of
from experiments.field.gpus import least_bandwidth
from experiments.field.networks import draft_of, named_architecture
from experiments.field.predict import predict, price_rows, what_ran
from experiments.field.rows import read_rows
from experiments.field.stored import stored, weight_bits
from experiments.field.summary import summarise
from hwmodels import catalog
from hwmodels.catalog.calibrations import LARGEST_HELD_OUT_ERROR, calibration_record, held_out_error
from hwmodels.speculation.engine_logs import NO_ENGINE

EAGLE = next(row for row in read_rows() if row.id == "V20780-1-k3")


def changed(row=EAGLE, **changes):
    """A row without a step of its own, so that no bandwidth is solved for."""
    return dataclasses.replace(row, ar_s=None, **changes)


def ran(row):
    target = named_architecture(row.target)
    return what_ran(row, target, draft_of(row, target))


@pytest.mark.parametrize(
    ("text", "bits", "formats"),
    [
        ("bf16 (default)", 16.0, ()),
        ("", 16.0, ()),
        ("torch.float16", 16.0, ()),
        ("float32", 32.0, ()),
        ("FP8 (per tensor)", 8.0, ("fp8",)),
        ("fp8 w8a8", 8.0, ("fp8",)),
        ("FP8 block 128x128", 8.0, ("fp8_block", "fp8")),
        ("fp8 marlin", 8.0, ()),
        ("W8A8 INT8", 8.0, ("sq",)),
        ("w8a16", 8.0, ()),
        ("NVFP4", 4.5, ("nvfp4",)),
        ("MXFP4", 4.25, ()),
        ("AWQ", 4.25, ()),
        ("GPTQ-INT4 g64", 4.5, ()),
        ("W4A16", 4.25, ()),
        ("W4A16 (fp8 kv cache)", 4.25, ()),
        ("4-bit (group-32)", 5.0, ()),
        ("4-bit affine", 4.5, ()),
        ("UD-IQ2_XXS (9.0 GB)", 2.0625, ()),
        ("5-bit", 5.5, ()),
        ("Q4_K_M", 4.5, ()),
        ("Q8_0", 8.5, ()),
        ("Q4_K_M (4.8 bpw)", 4.5, ()),
        ("exl3 4.25bpw", 4.25, ()),
        ("q4f16_1", 4.5, ()),
    ],
)
def test_precisions_are_bits_and_kernels(text, bits, formats):
    found = stored(text)
    assert (found.bits, found.formats) == (bits, formats)


@pytest.mark.parametrize(
    ("text", "bits", "head"),
    [
        ("W4A16 AutoRound + int4 lm_head", 4.25, 4.25),
        ("W4A16", 4.25, 16.0),
        ("GPTQ-INT4 g64; LM head int8", 4.5, 8.0),
        ("bf16 + int4 lm_head", 16.0, 4.25),
        ("4-bit, lm_head in bf16", 4.5, 16.0),
        ("fp8 without lm_head", 8.0, 16.0),
        ("AWQ (lm_head not quantized)", 4.25, 16.0),
        ("W4A16 (fp8 kv cache) + 6-bit output head (group-64)", 4.25, 6.5),
        ("4-bit (group-32)", 5.0, 5.0),
    ],
)
def test_a_head_has_the_width_that_is_named_for_it(text, bits, head):
    found = weight_bits(stored(text), catalog.architecture("llama-3.1-8b"))
    assert (found["q"], found["lm_head"]) == (bits, head)


def test_precisions_choose_the_kernels_of_target_and_draft():
    fp8 = ran(changed(target_precision="FP8", draft_precision="bf16"))
    assert (fp8.gpu.weight_format, fp8.draft_gpu, fp8.draft_format, fp8.notes) == ("fp8", fp8.gpu, None, ())
    both = ran(changed(target_precision="FP8", draft_precision="fp8"))
    assert both.draft_format == "fp8"
    assert (both.draft_gpu, both.footprint.draft_weight_bits["q"]) == (both.gpu, 8.0)
    apart = ran(changed(draft_precision="FP8"))
    assert (apart.gpu.weight_format, apart.draft_gpu.weight_format, apart.notes) == (None, "fp8", ())
    ampere = ran(changed(device="NVIDIA A100", target_precision="fp8", draft_precision="bf16"))
    assert ampere.gpu.weight_format is None
    assert ampere.notes[0].startswith("kernels of fp8 were not measured on a100-sxm-80gb with vllm")
    assert "the bytes of its 16-bit kernel are scaled" in ampere.notes[1]
    block = ran(changed(device="B200", target_precision="fp8 block", draft_precision="bf16"))
    assert block.notes[0] == "kernels of fp8_block were not measured on b200-sxm with vllm: those of fp8"
    hopper = changed(device="H200", engine="SGLang", target_precision="fp8 block", draft_precision="bf16")
    error = held_out_error(calibration_record("h200-sxm", "sglang")["formats"]["fp8_block"])
    assert error > LARGEST_HELD_OUT_ERROR
    doubt = f"kernels of fp8_block on h200-sxm with sglang err by {100 * error:.0f} % on held-out shapes"
    assert doubt in ran(hopper).notes
    assert ran(changed(target_precision="fp8 block", draft_precision="bf16")).notes == ()  # vLLM's are near enough
    assert "draft_precision is empty" in ran(changed(target_precision="int4", draft_precision="")).notes[-1]
    assert ran(changed(draft_kind="n-gram", target_precision="fp8")).notes == ()


@pytest.mark.paper
def test_terms_of_one_engine_are_not_taken_for_another():
    assert engine_of("vLLM V1 main").terms == catalog.engine("vllm")
    assert engine_of("vLLM V1 main").notes == ()
    assert engine_of("MTPLX (stock MLX 0.32.1)").terms == catalog.engine("mlx")
    assert engine_of("mlxcel-server CUDA (MLX)").name == "mlx-cuda"
    assert engine_of("vllm-mlx 0.2").name == "mlx"  # named after the server that it resembles
    assert engine_of("vLLM V1 (Jul 2025)").name == "vllm-2025"
    assert engine_of("vLLM V1 (Jul 2025)").kernels == "vllm"
    for old in ("vLLM 0.6.3", "vllm v0.7", "vLLM V0 (Mar 2025)"):
        assert "fitted to its version V1" in engine_of(old).notes[0]
    assert engine_of("vLLM v0.10.1").notes == engine_of("vLLM 0.9.2 (V1)").notes == ()
    assert engine_of("SGLang 0.5.3.post3").terms == catalog.engine("sglang") != catalog.engine("vllm")
    assert engine_of("SGLang 0.5.3.post3").notes == ()
    for name, why in (("TRT-LLM", "no source"), ("", "the catalog has no such engine")):
        found = engine_of(name)
        assert found.terms == NO_ENGINE
        assert why in found.notes[0]
    rows = [changed(), changed(engine="TensorRT-LLM")]
    own, other = answers(rows, price_rows(rows))
    assert (own["engine_terms"], own["kernels"], own["notes"]) == ("vllm-2025", "vllm", [])
    assert (other["engine_terms"], other["kernels"], len(other["notes"])) == (None, "trtllm", 1)
    # Kernels alone are the most there can be; the low end is one of an engine that spends what vLLM does.
    assert other["predicted_speedup"] > own["predicted_speedup"]
    assert other["low"] < own["predicted_speedup"] < other["predicted_speedup"] < other["high"]
    assert summarise(rows, [own, other])["notes"] == {other["notes"][0]: 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"draft_kind": "oracle"}, "draft_kind 'oracle' is not known"),
        ({"draft_kind": "separate_model", "draft": ""}, "but draft_model is empty"),
        ({"draft_kind": "separate_model", "draft": "Nobody-3B-MoE"}, "no architecture 'nobody-3b-moe'"),
        (
            {"draft_kind": "self-speculation", "draft": "Llama-3.1-8B", "draft_precision": "bf16"},
            "no column says how large",
        ),
        ({"draft_precision": "ternary"}, "precision 'ternary' is not known"),
        ({"target": "x" * 5000 + ".json"}, "the catalog has no architecture 'xxx"),
        ({"target": ""}, "the catalog has no architecture ''"),
        ({"device": "Apple M9 Max"}, "the catalog has no device 'Apple M9 Max'"),
        ({"device": "Jetson Orin", "device_count": 2}, "no link between devices of jetson-agx-orin"),
        ({"device_count": 4, "tensor_parallel": 8}, "tp=8, which does not divide device_count, 4"),
        ({"draft_length": 1e9}, "drafts of up to 512 tokens"),
        pytest.param(
            {"batch": 9e11, "prompt_tokens": 9e11, "output_tokens": 1.0},
            "beyond what the model can price",
            marks=pytest.mark.paper,
        ),
    ],
)
def test_each_row_that_is_not_priced_has_one_reason(changes, reason):
    (found,) = price_rows([changed(**changes)])
    assert isinstance(found, str)
    assert reason in found
    assert "\n" not in found
    (answer,) = answers([changed(**changes)], [found])
    assert (answer["why_not"], answer["predicted_speedup"], answer["notes"]) == (found, None, [])


@pytest.mark.parametrize(
    ("name", "devices", "least"),
    [
        ("NVIDIA H100", 1, 0.6),
        ("NVIDIA H100", 2, 1.0),
        ("NVIDIA H100 80GB HBM3", 1, 1.0),
        ("NVIDIA H800 SXM", 1, 0.6),
        ("NVIDIA L40S", 1, 1.0),
    ],
)
def test_a_name_bounds_the_bandwidth(name, devices, least):
    assert least_bandwidth(name, devices) == least


def test_matrices_beside_mxfp4_experts_are_as_the_engine_stores_them():
    for engine, bits in (("vLLM 0.20", 16.0), ("llama.cpp b9000", 8.5), ("mlx-lm 0.30", 8.5)):
        widths = ran(
            changed(target="gpt-oss-20b", target_precision="MXFP4", engine=engine)
        ).footprint.target_weight_bits
        assert (float(widths["q"]), float(widths["expert_up"])) == (bits, 4.25)


@pytest.mark.paper
def test_an_interval_is_as_wide_as_the_widest_that_a_row_is_of():
    row = dataclasses.replace(changed(device="DGX Spark", target="Qwen3-30B-A3B", device_count=2), id="mine")
    (parts,) = price_rows([row])
    assert kinds_of(row, parts) == ("several devices", "unmeasured kernels", "mixture")
    (answer,) = answers([row], [parts])
    widest = max(catalog.engine_scatter("vllm")[kind] for kind in kinds_of(row, parts))
    assert np.log(answer["high"] / answer["predicted_speedup"]) == pytest.approx(1.645 * widest, rel=1e-2)


LLAMA = next(row for row in read_rows() if row.id == "SX-5090-600W-n3")


@pytest.mark.paper
def test_rows_of_a_verification_take_instructions_under_llama_cpp():
    (parts,) = price_rows([LLAMA])
    assert parts.rows is not None
    assert (parts.device, parts.rows.ar_s, parts.rows.bound) == ("rtx-5090", 0.0, None)
    # Three further rows of 27 billion weights, an instruction as long as a multiply-add of 104.8 TFLOPS; none of a head.
    assert parts.rows.cycle_s == pytest.approx(3 * 2 * 26.9e9 / 104.8e12, rel=0.05)
    few, many = (predict(LLAMA, parts, instructions=count).speedup for count in (1.0, 4.0))
    assert few > many


@pytest.mark.device_matrix
def test_launches_of_an_eager_engine_take_as_long_in_each_layer_of_a_draft():
    row = dataclasses.replace(EAGLE, device="RTX 3090", draft_kind="separate_model", draft="Qwen3-1.7B", ar_s=0.2)
    eager, graphs = price_rows(
        [dataclasses.replace(row, engine=name, group=name) for name in ("HF transformers", "vLLM")]
    )
    assert eager.step_rest_s > 0.05
    share = row.draft_length * 28 / 32  # layers of the draft and of the target
    drafting_s = eager.cycle_s - eager.step_rest_s - (graphs.cycle_s - graphs.step_rest_s)
    assert drafting_s == pytest.approx(share * eager.step_rest_s, rel=0.1)


@pytest.mark.paper
def test_a_slow_step_of_a_mixture_takes_a_rest_and_no_instructions():
    slow = dataclasses.replace(LLAMA, ar_s=0.05, group="dense")
    experts = dataclasses.replace(LLAMA, target="Qwen3-30B-A3B", ar_s=8e-3, group="mixture")
    dense, mixture = price_rows([slow, experts])
    assert dense.rows.bound > 1.0
    assert (dense.step_rest_s, mixture.rows.bound) == (0.0, None)
    assert 1e-3 < mixture.step_rest_s < 7e-3
    assert mixture.ar_s == pytest.approx(8e-3, rel=1e-3)
