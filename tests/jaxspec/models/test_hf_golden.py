"""Logits of small random checkpoints against what transformers computed from them (tests/golden/make_hf_golden.py).

"Within 2e-5" means: no logit of an array is further from its expected value than 2e-5 times the largest expected
magnitude of that array.
"""

import dataclasses
import functools
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import forward_of

from hwmodels.networks import LearnedPositions, runnable_families
from jaxspec.models import decoder, dots, kv_cache
from jaxspec.models.hf_load import load_directory
from jaxspec.models.rope import Rope

pytestmark = pytest.mark.usefixtures("exact_products")

GOLDEN = Path(__file__).parents[2] / "golden" / "hf"
# These tests spend their time on compiling: hence once per configuration and shape, one width for long texts and for
# prefill, and no optimisation of tiny networks.
forward = jax.jit(forward_of, static_argnames="config")
forward_text = jax.jit(decoder.forward_text, static_argnames="config")
write_cache = jax.jit(kv_cache.write_cache)
WIDTH = 33
STEPS_OF_THREE = ("llama_scaled_tied", "qwen3_untied", "llama_dynamic_biased")

CASES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
TOLERANCE = 2e-5


@functools.cache
def loaded(case):
    with np.load(GOLDEN / case / "expected.npz") as arrays:
        return load_directory(GOLDEN / case), dict(arrays)


def relative_error(actual, expected):
    assert actual.shape == expected.shape
    return float(np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max())


def test_there_are_cases_of_every_family_that_runs():
    families = {loaded(case)[0].family.name for case in CASES}
    assert families == set(runnable_families())
    assert {loaded(case)[0].config.tie_embeddings for case in CASES} == {False, True}
    assert {str(loaded(case)[0].params["embed"].dtype) for case in CASES} == {"float32", "bfloat16", "float16"}


def run_wide(config, params, tokens, length):
    """`tokens` cut or padded to WIDTH, of which the first `length[b]` of sequence b see each other."""
    columns = np.arange(WIDTH)
    padded = np.zeros((2, WIDTH), np.int32)
    padded[:, : tokens.shape[1]] = tokens[:, :WIDTH]
    mask = np.asarray(decoder.causal_mask(2, WIDTH)) & (columns < length[:, None])[:, None]
    return forward(
        params,
        config,
        tokens=padded,
        positions=np.broadcast_to(columns, (2, WIDTH)),
        mask=mask,
        lengths=np.broadcast_to(length[:, None], (2, WIDTH)),
    )


def wide_error(config, params, expected):
    return relative_error(
        run_wide(config, params, expected["tokens_33"], np.full(2, WIDTH)).logits, expected["logits_33"]
    )


#: One of each kind of block, in every run.
FEW = pytest.mark.network("llama_grouped", "gemma2_capped", "mixtral_window", "deepseek_v2_whole", "qwen3_5_hybrid")


@pytest.mark.parametrize(("case", "length"), [("llama_scaled_tied", 7), ("qwen3_untied", 1)])
def test_short_texts_without_a_cache(case, length):
    model, expected = loaded(case)
    logits = forward_text(model.params, model.config, expected[f"tokens_{length}"]).logits
    assert relative_error(logits, expected[f"logits_{length}"]) < TOLERANCE


@FEW
@pytest.mark.parametrize("case", CASES)
def test_whole_texts_and_decoding_with_a_cache(case):
    model, expected = loaded(case)
    assert wide_error(model.config, model.params, expected) < TOLERANCE
    if case.endswith("_multimodal"):  # of blocks that other cases have, whose caches are tested there
        return
    # Two sequences of different prompt length in one batch, each at its own offset in the cache, which must not matter.
    # Prompts are padded; the padding is written to the cache, hidden by the mask, and overwritten.
    tokens, length = expected["cached_tokens"], expected["prompt_lengths"]
    first_slot = np.array([3, 1])
    prefill = run_wide(model.config, model.params, tokens, length)
    cache = kv_cache.empty_cache(model.config, 2, WIDTH + 4)
    cache = write_cache(cache, prefill.cache, first_slot)
    assert relative_error(prefill.logits[np.arange(2), length - 1], expected["prefill_logits"]) < TOLERANCE

    decoded = []
    for step in (1, 1, 1, 1, 3) if case in STEPS_OF_THREE else (1,) * 7:
        slots = np.arange(cache.num_slots)
        seen = (slots >= first_slot[:, None]) & (slots < (first_slot + length)[:, None])
        result = forward(
            model.params,
            model.config,
            tokens=np.stack([row[start : start + step] for row, start in zip(tokens, length)]),
            positions=length[:, None] + np.arange(step),
            mask=decoder.causal_mask(2, step),
            sources=[kv_cache.CachedKV(cache, np.broadcast_to(seen[:, None], (2, step, cache.num_slots)))],
            lengths=np.broadcast_to(length[:, None] + step, (2, step)),
        )
        cache = write_cache(cache, result.cache, first_slot + length)
        length = length + step
        decoded.append(np.asarray(result.logits))
    assert relative_error(np.concatenate(decoded, axis=1), expected["cached_logits"]) < TOLERANCE


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("opt")])
def test_rotary_frequencies(case):
    # float32 powers of two libraries differ in the last bit or two.
    model, expected = loaded(case)
    config, close = model.config, {"rtol": 4 * np.finfo(np.float32).eps}
    frequencies = lambda rope: np.asarray(rope.frequencies(config.rotated_elements, jnp.ones((), jnp.int32)))
    main = Rope(config.rope_theta, config.rope_scaling)
    np.testing.assert_allclose(frequencies(main), expected["inverse_frequencies"], **close)
    if config.local_rope is not None:
        np.testing.assert_allclose(frequencies(config.local_rope), expected["local_inverse_frequencies"], **close)


def _heads_dealt_in_turn(config, params):
    # Query head h reads KV head h mod num_kv_heads instead of h // (num_heads / num_kv_heads).
    swap = lambda w: w.reshape(w.shape[0], -1, config.num_kv_heads, config.head_dim, w.shape[-1]).swapaxes(1, 2)
    layers = dict(params["layers"])
    layers["q"] = swap(layers["q"]).reshape(layers["q"].shape)
    layers["o"] = swap(layers["o"].swapaxes(1, 2)).reshape(layers["o"].swapaxes(1, 2).shape).swapaxes(1, 2)
    return config, params | {"layers": layers}


def _without(leaf):
    def mutate(config, params):
        neutral = jnp.zeros_like if leaf.endswith("bias") else jnp.ones_like
        return config, params | {"layers": params["layers"] | {leaf: neutral(params["layers"][leaf])}}

    return mutate


def _interleaved_rotation(config, params):
    # As if the planes were (2i, 2i + 1): rows of q and k permuted into the other convention.
    order = np.arange(config.head_dim).reshape(-1, 2).T.reshape(-1)
    layers = dict(params["layers"])
    for kind in ("q", "k"):
        shape = layers[kind].shape
        layers[kind] = layers[kind].reshape(shape[0], -1, config.head_dim, shape[-1])[:, :, order].reshape(shape)
    return config, params | {"layers": layers}


def _without_attention_factor(config, params):
    return dataclasses.replace(
        config, rope_scaling=dataclasses.replace(config.rope_scaling, attention_factor=1.0)
    ), params


def _without_offset(config, params):
    return dataclasses.replace(config, learned_positions=LearnedPositions(config.learned_positions.rows)), params


def _with_experts(config, **changes):
    return dataclasses.replace(config, experts=dataclasses.replace(config.experts, **changes))


def _experts(**changes):
    return lambda c, p: (dataclasses.replace(c, experts=dataclasses.replace(c.experts, **changes)), p)


MUTANTS = {
    "raw_weights": ("mixtral_window", _experts(renormalised=False)),
    "divided_weights": ("qwen3_moe_sparse", _experts(renormalised=True)),
    "fewer_experts": ("qwen3_moe_sparse", _experts(per_token=2)),
    "expert_order": (
        "mixtral_window",
        lambda c, p: (c, p | {"layers": p["layers"] | {"expert_down": p["layers"]["expert_down"][:, ::-1]}}),
    ),
    "unscaled_experts": ("glm4_moe_grouped", _experts(scale=1.0)),
    "ungrouped_experts": ("glm4_moe_grouped", _experts(groups=1, groups_per_token=1)),
    "uncorrected_scores": ("glm4_moe_grouped", _without("correction_bias")),
    "softmax_scores": ("glm4_moe_grouped", _experts(scores="softmax")),
    "norm_eps": ("llama_grouped", lambda c, p: (dataclasses.replace(c, norm_eps=1e-6), p)),
    "kv_groups": ("llama_grouped", _heads_dealt_in_turn),
    "rotation_planes": ("llama_grouped", _interleaved_rotation),
    "mlp_norm": ("llama_grouped", _without("mlp_norm")),
    "rope_scaling": ("llama_scaled_tied", lambda c, p: (dataclasses.replace(c, rope_scaling=None), p)),
    "rope_theta": ("qwen3_untied", lambda c, p: (dataclasses.replace(c, rope_theta=10_000.0), p)),
    "window": ("mistral_window", lambda c, p: (dataclasses.replace(c, windows=(7,)), p)),
    "windows_elsewhere": ("gemma2_capped", lambda c, p: (dataclasses.replace(c, windows=(None, 5, 5)), p)),
    "no_score_cap": ("gemma2_capped", lambda c, p: (dataclasses.replace(c, score_cap=None), p)),
    "score_scale": ("gemma2_capped", lambda c, p: (dataclasses.replace(c, score_scale=None), p)),
    "unshifted": ("gemma3_local", lambda c, p: (dataclasses.replace(c, norm="rms"), p)),
    "one_rotation": ("gemma3_local", lambda c, p: (dataclasses.replace(c, local_rope=None), p)),
    "all_rotated": ("smollm3_unrotated", lambda c, p: (dataclasses.replace(c, rotated=(True,)), p)),
    "whole_rotated": ("exaone4_windows", lambda c, p: (dataclasses.replace(c, rotated=(True,)), p)),
    "half_split": ("glm4_interleaved", lambda c, p: (dataclasses.replace(c, interleaved_rope=False), p)),
    "whole_rotation": ("phi3_partial", lambda c, p: (dataclasses.replace(c, rotary_dim=None), p)),
    "attention_factor": ("olmo2_yarn", _without_attention_factor),
    "no_growing_base": ("llama_dynamic_biased", lambda c, p: (dataclasses.replace(c, rope_scaling=None), p)),
    "residual_scale": ("granite_linear", lambda c, p: (dataclasses.replace(c, residual_scale=0.5), p)),
    "position_offset": ("opt_learned", _without_offset),
    "no_biases": ("qwen2_biased", lambda c, p: (dataclasses.replace(c, qkv_bias=False), p)),
    "k_bias": ("qwen2_biased", _without("k_bias")),
    "no_qk_norm": ("qwen3_untied", lambda c, p: (dataclasses.replace(c, qk_norm=False), p)),
    "q_norm": ("qwen3_tied_sharded", _without("q_norm")),
    "k_norm": ("qwen3_tied_sharded", _without("k_norm")),
    "layer_order": (
        "qwen3_tied_sharded",
        lambda c, p: (c, p | {"layers": jax.tree.map(lambda leaf: leaf[::-1], p["layers"])}),
    ),
    "no_sinks": ("gpt_oss_sinks", lambda c, p: (dataclasses.replace(c, attention_sinks=False), p)),
    "no_clamp": ("gpt_oss_sinks", lambda c, p: (_with_experts(c, clamp=7.0), p)),
    "expert_biases": ("gpt_oss_packed", _without("expert_up_bias")),
    "router_bias": ("gpt_oss_packed", _without("router_bias")),
    "no_groups": ("deepseek_v2_grouped", lambda c, p: (_with_experts(c, groups=1), p)),
    "score_mscale": ("deepseek_v2_grouped", lambda c, p: (dataclasses.replace(c, score_scale=None), p)),
    "routed_scale": ("deepseek_v2_grouped", lambda c, p: (_with_experts(c, scale=1.0), p)),
    "latent_norm": ("deepseek_v2_whole", _without("kv_down_norm")),
    "latent_planes": ("deepseek_v2_whole", lambda c, p: (dataclasses.replace(c, interleaved_rope=False), p)),
    "no_correction": ("glm4_moe_lite_latent", _without("correction_bias")),
    "gate_for_up": (
        "llama_bfloat16",
        lambda c, p: (c, p | {"layers": p["layers"] | {"gate": p["layers"]["up"], "up": p["layers"]["gate"]}}),
    ),
}


@pytest.mark.network("raw_weights", "kv_groups", "rope_scaling", "window")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_sees_a_wrong_network(mutant):
    case, mutate = MUTANTS[mutant]
    model, expected = loaded(case)
    config, params = mutate(model.config, model.params)
    assert wide_error(config, params, expected) > 1000 * TOLERANCE


def test_the_older_spelling_of_rotary_settings_is_the_same_network(tmp_path):
    source = GOLDEN / "llama_scaled_tied"
    raw = json.loads((source / "config.json").read_text())
    rope = raw.pop("rope_parameters")
    raw |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope, "torch_dtype": raw.pop("dtype")}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    shutil.copy(source / "model.safetensors", tmp_path)
    assert load_directory(tmp_path).config == load_directory(source).config


def test_bfloat16_weights_upcast_at_loading_or_in_the_forward_pass_alike(monkeypatch):
    model, expected = loaded("llama_bfloat16")
    wide = load_directory(GOLDEN / "llama_bfloat16", dtype=jnp.float32)
    assert {leaf.dtype for leaf in jax.tree.leaves(wide.params)} == {jnp.dtype("float32")}
    for kind in model.config.matrix_kinds:
        np.testing.assert_array_equal(wide.params["layers"][kind], model.params["layers"][kind].astype(jnp.float32))
    tokens, length = expected["tokens_33"], np.full(2, WIDTH)
    upcast = run_wide(wide.config, wide.params, tokens, length).logits
    # Where nothing is upcast, since the processor multiplies bfloat16, sums have another order.
    as_stored = run_wide(model.config, model.params, tokens, length).logits
    np.testing.assert_allclose(as_stored, upcast, rtol=0, atol=1e-6 * float(jnp.abs(upcast).max()))
    monkeypatch.setattr(dots, "_has_unit", lambda: False)
    jax.clear_caches()
    np.testing.assert_array_equal(run_wide(model.config, model.params, tokens, length).logits, upcast)
