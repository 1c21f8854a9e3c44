import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import (
    OPERATORS,
    Workload,
    catalog,
    decode_operators,
    step_operators,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.network.operators import StepShape, decode_step, draft_step, prefill_step, verify_step

BF16 = uniform_footprint(16)


def by_name(array):
    return dict(zip(OPERATORS, np.asarray(array, float), strict=True))


def test_a_step_by_hand(small):
    # 5 sequences, 2 new tokens each = 10 rows, 11 cached tokens each; 3 layers, hidden 10, ffn 21, 4 / 2 heads of 7.
    work = step_operators(
        dataclasses.replace(small, qk_norm=1.0),
        StepShape(
            tokens=2, batch=5, context_tokens=11, weight_bits=uniform_weight_bits(6.0, ("q", "embed")), kv_bits=4.0
        ),
    )
    flops = by_name(work.flops)
    assert flops["embed"] == 0
    assert flops["qkv"] == 2 * (840 + 2 * 420) * 10  # 2 per weight and row
    assert flops["down"] == 2 * 630 * 10
    assert flops["lm_head"] == 2 * 310 * 10
    # One new token sees 12, the other 13: 12.5 on average; 2 products of 2 FLOPs on 4 * 7 elements, 3 layers.
    assert flops["attention"] == pytest.approx(4 * 28 * 12.5 * 10 * 3)
    # Per row and layer two norms of 10 and the 6 heads of 7; one more norm of 10 per row at the end; 4 FLOPs each.
    assert flops["norm"] == 4 * (10 * 3 * (20 + 42) + 10 * 10)

    weights = by_name(work.weight_bytes)
    assert weights["embed"] == 10 * 10 * 6 / 8  # one row of 10 per token
    assert weights["qkv"] == 840 * 6 / 8 + 2 * 420 * 2
    assert weights["gate_up"] == 2 * 630 * 2
    assert weights["norm"] == (70 + 42) * 2
    assert weights["lm_head"] == 310 * 2
    assert weights["attention"] == 0

    kv = by_name(work.kv_bytes)
    # 84 elements per token: 5 * 11 tokens read at 4 bits, 10 new ones written at 16.
    assert kv.pop("attention") == 84 * (55 * 0.5 + 10 * 2)
    assert set(kv.values()) == {0.0}

    # 16-bit activations; 10 rows, 30 in the layers.
    assert by_name(work.activation_bytes) == dict.fromkeys(OPERATORS, 0.0) | {
        "embed": 2 * 10 * 10,
        "qkv": 2 * 30 * (10 + 28),
        "attention": 2 * 30 * (28 + 28),
        "o": 2 * 30 * (28 + 10 + 10),
        "gate_up": 2 * 30 * (10 + 21),
        "down": 2 * 30 * (21 + 10 + 10),
        "norm": 2 * 2 * 10 * (2 * 30 + 10),
        "lm_head": 2 * 10 * (10 + 31),
    }
    dense = dict.fromkeys(("qkv", "attention", "o", "gate_up", "down"), 3.0)
    assert by_name(work.launches) == dict.fromkeys(OPERATORS, 0.0) | dense | {"embed": 1, "norm": 7, "lm_head": 1}
    np.testing.assert_allclose(work.memory_bytes, work.weight_bytes + work.kv_bytes + work.activation_bytes)


def test_llama_reads_15_gb_per_decode_step():
    # 8.03e9 parameters less the 0.525e9 of the embedding, of which one row is read; 2 bytes each.
    work = decode_operators(catalog.architecture("llama-3.1-8b"), Workload(context_tokens=2048.0), footprint=BF16)
    assert float(work.weight_bytes.sum()) == pytest.approx(2 * (8_030_261_248 - 525_336_576 + 4096), rel=1e-6)
    assert float(work.weight_bytes.sum()) == pytest.approx(15.0e9, rel=2e-3)
    # 131 kB per cached token, and as much for the new one.
    assert float(work.kv_bytes.sum()) == pytest.approx(131_072 * 2049, rel=1e-6)
    # 2 FLOPs per weight that multiplies: the rule of thumb of 2 * parameters, short of the embedding.
    assert float(work.flops.sum()) == pytest.approx(2 * 7.505e9, rel=0.1)


@pytest.mark.device_matrix
def test_chunked_prefill_costs_the_flops_of_its_decode_steps(small):
    # An independent witness for causal attention: the new tokens one by one, each seeing one more.
    context, tokens = 5, 7
    arguments = {"batch": 3, "weight_bits": BF16.target_weight_bits, "kv_bits": 16}
    together = step_operators(small, StepShape(tokens=tokens, context_tokens=context, **arguments))
    one_by_one = [
        step_operators(small, StepShape(tokens=1, context_tokens=context + i, **arguments)) for i in range(tokens)
    ]
    np.testing.assert_allclose(together.flops, sum(work.flops for work in one_by_one), rtol=1e-6)
    # Activations, too, go with the rows; weights are what a longer pass saves.
    np.testing.assert_allclose(together.activation_bytes, sum(w.activation_bytes for w in one_by_one), rtol=1e-6)
    saved = sum(by_name(w.weight_bytes)["o"] for w in one_by_one) / by_name(together.weight_bytes)["o"]
    assert saved == pytest.approx(tokens)


def test_attention_flops_by_counting(small):
    context, tokens, batch = 4, 3, 2
    count = 0
    for _, _, new, position, _ in itertools.product(
        range(batch), range(3), range(tokens), range(context + tokens), range(4 * 7)
    ):
        if position <= context + new:
            count += 4  # a multiply and an add, for the score and again for the value
    work = step_operators(
        small,
        StepShape(tokens=tokens, batch=batch, context_tokens=context, weight_bits=BF16.target_weight_bits, kv_bits=16),
    )
    assert by_name(work.flops)["attention"] == count


@pytest.mark.device_matrix
def test_steps_differ_in_tokens_widths_logits_and_mode_only(small, workload, footprint):
    target = {"weight_bits": footprint.target_weight_bits, "kv_bits": footprint.target_kv_bits}
    here = {"batch": 3.0, "context_tokens": 117.0}
    for step, expected in [
        (decode_step(workload, footprint=footprint), step_operators(small, StepShape(tokens=1, **here, **target))),
        (
            verify_step(workload, footprint=footprint, verify_tokens=5),
            step_operators(small, StepShape(tokens=5, speculating=1, **here, **target)),
        ),
        (
            draft_step(workload, footprint=footprint),
            step_operators(
                small,
                StepShape(
                    tokens=1,
                    **here,
                    weight_bits=footprint.draft_weight_bits,
                    kv_bits=6.3,
                    stored_weight_bits=footprint.target_weight_bits,
                    stored_kv_bits=12.7,
                    encoded_kv_share=0.0,
                    speculating=1,
                    drafting=1,
                ),
            ),
        ),
        (
            prefill_step(workload, footprint=footprint),
            step_operators(small, StepShape(tokens=53, batch=3, context_tokens=0, logit_tokens=1, **target)),
        ),
    ]:
        chex.assert_trees_all_close(step_operators(small, step), expected)


@pytest.mark.device_matrix
def test_gradient(small, workload, footprint, check_gradient):
    def total(leaves):
        architecture, workload, footprint = leaves
        steps = (
            verify_step(workload, footprint=footprint, verify_tokens=workload.batch),
            prefill_step(workload, footprint=footprint),
        )
        work = [step_operators(architecture, step) for step in steps]
        return sum(jnp.sum(jnp.log1p(leaf)) for leaf in jax.tree.leaves(work))

    check_gradient(total, (dataclasses.replace(small, qk_norm=0.3), workload, footprint))
