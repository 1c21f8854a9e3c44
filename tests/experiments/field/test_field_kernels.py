"""Rows of any engine, precision and device: each with its own kernels and terms, or a sentence on what is not measured."""

import dataclasses
from pathlib import Path

import pytest
from rich.console import Console

from experiments.field.__main__ import answers, show
from experiments.field.engines import engine_of
from experiments.field.gpus import named_device
from experiments.field.networks import draft_of, named_architecture
from experiments.field.predict import predict, price_rows, what_ran
from experiments.field.rows import read_rows
from experiments.field.stored import SIXTEEN_BITS, NotPricedError, kv_bits, stored, weight_bits
from experiments.field.summary import summarise, weights_ratio
from hwmodels import catalog
from hwmodels.catalog.calibrations import LARGEST_HELD_OUT_ERROR, calibration_record, held_out_error
from hwmodels.speculation.engine_logs import NO_ENGINE

EAGLE = next(row for row in read_rows() if row.id == "V20780-1-k3")
NETWORK = dataclasses.replace(read_rows()[0], draft_length=3.0, tokens_per_cycle=2.2, ar_s=None)


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


@pytest.mark.parametrize(
    ("text", "is_old"),
    [
        ("vLLM V1 0.1.dev13107+ge1a34c3a5 (main, Jan 2026)", False),
        ("vLLM 0.7.3 (V1)", False),
        ("vLLM 0.10.1", False),
        ("vLLM v0.6.3", True),
        ("vLLM V0", True),
    ],
)
def test_a_build_without_tags_is_no_v0(text, is_old):
    assert any("were fitted to its version V1" in note for note in engine_of(text).notes) == is_old


@pytest.mark.parametrize("text", ["ternary", "auto", "vq2_xxs", "16 bananas", "8"])
def test_precisions_that_are_not_known_say_what_is(text):
    with pytest.raises(NotPricedError, match=r"precision .* is not known; known are such as bf16, fp8"):
        stored(text)


def test_quantized_networks_keep_their_ends_and_their_cache():
    llama, mixture = catalog.architecture("llama-3.1-8b"), catalog.architecture("gpt-oss-20b")
    fp8 = weight_bits(stored("fp8"), llama)
    assert (fp8["q"], fp8["expert_up"], fp8["lm_head"], fp8["embed"]) == (8.0, 8.0, 16.0, 16.0)
    assert weight_bits(stored("q8_0"), llama)["lm_head"] == 8.5
    assert [weight_bits(stored("mxfp4"), mixture)[kind] for kind in ("q", "expert_up")] == [16.0, 4.25]
    assert [kv_bits(text) for text in ("fp8", "bf16, fp8 kv", "kv_cache_dtype=fp8", "KV 8-bit")] == [
        16.0,
        8.0,
        8.0,
        8.0,
    ]


def test_each_engine_has_its_own_kernels():
    found = {
        name: named_device("NVIDIA H100", engine_of(name).name) for name in ("vLLM V1", "SGLang 0.4", "TensorRT-LLM")
    }
    assert [one.kernels for one in found.values()] == ["vllm", "sglang", "trtllm"]
    assert not any(one.notes for one in found.values())
    steps = {name: price_rows([changed(engine=name)])[0].cycle_s for name in ("vLLM V1", "SGLang 0.4", "TensorRT-LLM")}
    assert len(set(steps.values())) == 3
    other = named_device("NVIDIA H100", engine_of("llama.cpp b4000").name)
    assert other.kernels == "trtllm"
    assert other.notes == (
        "kernels of llama.cpp were not measured on h100-sxm: those of trtllm (measured: sglang, trtllm, vllm)",
    )
    assert "no kernels were measured on jetson-agx-orin" in named_device("Jetson AGX Orin", "vllm").notes[0]
    assert named_device("H100 PCIe", "vllm").name == "h100-pcie"
    studio = named_device("Apple M3 Ultra 256GB", engine_of("MTPLX (stock MLX 0.32.1)").name)
    assert (studio.name, studio.kernels, studio.weight_format) == ("m3-ultra", None, None)
    assert studio.device == catalog.device("m3-ultra")
    # The name does not say how many cores the GPU has.
    assert "is priced as m3-ultra" in studio.notes[0]
    assert "the rates of its file" in studio.notes[1]
    assert len(named_device("Apple M3 Ultra, 80-core GPU").notes) == 1
    assert named_device("2xH100", "vllm") == named_device("NVIDIA H100", "vllm")


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


def test_narrow_weights_are_faster_on_either_side():
    plain, target, draft, packed = price_rows(
        [
            changed(NETWORK),
            changed(NETWORK, target_precision="fp8"),
            changed(NETWORK, draft_precision="fp8"),
            changed(NETWORK, draft_precision="int4"),
        ]
    )
    assert plain.ar_s / target.ar_s > 1.4
    assert plain.ar_s == draft.ar_s
    # Of the cycle, a draft's weights are the smaller part.
    assert target.cycle_s < packed.cycle_s < draft.cycle_s < plain.cycle_s
    assert weights_ratio(changed(NETWORK, draft_precision="int4")) > weights_ratio(NETWORK)


def test_terms_of_one_engine_are_not_taken_for_another():
    assert engine_of("vLLM V1 main").terms == catalog.engine("vllm")
    assert engine_of("vLLM V1 main").notes == ()
    assert engine_of("MTPLX (stock MLX 0.32.1)").terms == catalog.engine("mlx")
    assert engine_of("mlxcel-server CUDA (MLX)").name == "mlx-cuda"
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
        ({"draft_kind": "separate_model", "draft": "Nobody-3B"}, "no architecture 'nobody-3b'"),
        ({"draft_precision": "ternary"}, "precision 'ternary' is not known"),
        ({"target": "x" * 5000 + ".json"}, "the catalog has no architecture 'xxx"),
        ({"target": ""}, "the catalog has no architecture ''"),
        ({"device": "Apple M9 Max"}, "the catalog has no device 'Apple M9 Max'"),
        ({"device": "Jetson Orin", "device_count": 2}, "no link between devices of jetson-agx-orin"),
        ({"device_count": 4, "tensor_parallel": 8}, "tp=8, which does not divide device_count, 4"),
        ({"draft_length": 1e9}, "drafts of up to 512 tokens"),
        ({"batch": 9e11, "prompt_tokens": 9e11, "output_tokens": 1.0}, "beyond what the model can price"),
    ],
)
def test_each_row_that_is_not_priced_has_one_reason(changes, reason):
    (found,) = price_rows([changed(**changes)])
    assert isinstance(found, str)
    assert reason in found
    assert "\n" not in found
    (answer,) = answers([changed(**changes)], [found])
    assert (answer["why_not"], answer["predicted_speedup"], answer["notes"]) == (found, None, [])


def test_a_draft_network_that_cannot_be_shared_is_held_whole():
    row = changed(NETWORK, target="Qwen2.5-72B", draft="Qwen2.5-0.5B", device_count=4, tensor_parallel=4)
    found = ran(row)
    assert float(found.gpu.device.group.draft_tensor_parallel) == 1.0
    assert "cannot be shared by 4 devices" in found.notes[0]
    assert ran(changed(device_count=4)).notes == ()


def test_sixteen_bits_are_taken_where_nothing_is_written():
    assert stored("") == SIXTEEN_BITS == stored("bf16")


def test_what_is_not_measured_is_shown():
    rows = [changed(engine="TRT-LLM"), changed(id="other", engine="TRT-LLM"), changed(id="none", device="Apple M9 Max")]
    found = answers(rows, price_rows(rows))
    console = Console(width=200, record=True)
    show(summarise(rows, found), console)
    text = " ".join(console.export_text().split())
    assert "2 rows: what TRT-LLM spends beside its kernels is not known (no source: " in text
    assert "1 not predicted: the catalog has no device 'Apple M9 Max'" in text


LLAMA = next(row for row in read_rows() if row.id == "SX-5090-600W-n3")


def test_rows_of_a_verification_take_instructions_under_llama_cpp():
    (parts,) = price_rows([LLAMA])
    assert parts.rows is not None
    assert (parts.device, parts.rows.ar_s, parts.rows.bound) == ("rtx-5090", 0.0, None)
    # Three further rows of 27 billion weights, an instruction as long as a multiply-add of 104.8 TFLOPS; none of a head.
    assert parts.rows.cycle_s == pytest.approx(3 * 2 * 26.9e9 / 104.8e12, rel=0.05)
    few, many = (predict(LLAMA, parts, instructions=count).speedup for count in (1.0, 4.0))
    assert few > many


def test_a_sequence_alone_has_no_prompt_of_another_beside_it():
    with_prompt, without = price_rows(
        [dataclasses.replace(LLAMA, prompt_tokens=prompt, output_tokens=200.0) for prompt in (64.0, None)]
    )
    assert with_prompt.rows == without.rows


def test_a_step_far_below_the_data_sheet_is_bound_by_instructions():
    slow = dataclasses.replace(LLAMA, ar_s=2.5 * LLAMA.ar_s, group="slow")
    (parts,) = price_rows([slow])
    assert any("bound by instructions" in note for note in parts.notes)
    assert parts.rows.bound * parts.rows.cycle_s / 3 == pytest.approx(0.5 * parts.ar_s, rel=0.05)


def test_a_head_in_the_targets_file_is_stored_as_the_target():
    found = ran(LLAMA)
    assert found.footprint.draft_weight_bits == found.footprint.target_weight_bits
    whole = stored("UD-Q2_K_XL (10.7 GB)")
    bits = weight_bits(whole, named_architecture("Qwen3.8-27B"))
    assert bits["q"] == bits["lm_head"] == pytest.approx(10.7 * 8 / 26.9, rel=0.05)


def test_a_block_drafter_takes_one_pass():
    block, chain = (
        dataclasses.replace(changed(LLAMA), draft_kind=kind) for kind in ("DFlash block drafter", "MTP head")
    )
    found = [
        price_rows([dataclasses.replace(row, draft_length=length)])[0]
        for row in (block, chain)
        for length in (3.0, 6.0)
    ]
    more = [found[1].cycle_s - found[0].cycle_s, found[3].cycle_s - found[2].cycle_s]
    assert 0.0 < more[0] < 0.5 * more[1]


def test_two_gpus_are_the_cards_that_explain_their_steps():
    rows = [row for row in read_rows() if row.id in ("TR001", "TR005")]
    (own, _) = price_rows(rows)
    assert own.device == "h100-pcie"
    assert own.ar_s == pytest.approx(rows[0].ar_s, rel=1e-2)
    module = [dataclasses.replace(row, device="NVIDIA H100 SXM", group="module") for row in rows]
    assert price_rows(module)[0].device == "h100-sxm"


def test_a_device_may_be_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes((Path(catalog.__file__).with_name("devices") / "rtx-3090.toml").read_bytes())
    file, name = (
        price_rows([dataclasses.replace(changed(LLAMA), device=device)])[0] for device in (str(path), "RTX 3090")
    )
    assert file.cycle_s == name.cycle_s
