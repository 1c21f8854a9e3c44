"""Checkpoints of families with mixtures of experts."""

from __future__ import annotations

from hf_case import Case, sizes

#: One or several of each family.
EXPERT_CASES = (
    # Experts in layers 1 and 2 of 0 to 3, weights as softmax gives them; expert sizes that no power of two divides.
    Case(
        "qwen3_moe_sparse",
        "qwen3_moe",
        sizes(
            43,
            28,
            30,
            4,
            4,
            2,
            head_dim=10,
            num_experts=7,
            num_experts_per_tok=3,
            moe_intermediate_size=9,
            mlp_only_layers=[0, 3],
            norm_topk_prob=False,
        ),
        seed=31,
        dtype="bfloat16",
    ),
    # Experts in all layers, weights divided by their sum; a window.
    Case(
        "mixtral_window",
        "mixtral",
        sizes(47, 24, 22, 2, 6, 3, num_local_experts=5, num_experts_per_tok=2, sliding_window=8),
        seed=32,
    ),
    # A dense layer, then experts of which two groups of three are chosen from, and a shared one; corrected scores.
    Case(
        "glm4_moe_grouped",
        "glm4_moe",
        sizes(
            45,
            32,
            26,
            3,
            4,
            2,
            head_dim=12,
            attention_bias=True,
            use_qk_norm=True,
            n_routed_experts=12,
            num_experts_per_tok=3,
            n_shared_experts=2,
            moe_intermediate_size=7,
            n_group=3,
            topk_group=2,
            routed_scaling_factor=1.7,
            first_k_dense_replace=1,
        ),
        seed=33,
        dtype="bfloat16",
    ),
)
