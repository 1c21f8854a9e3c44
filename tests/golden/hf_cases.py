"""The small random checkpoints that the loader is tested with: families, shapes, and how they are stored."""

from __future__ import annotations

from hf_case import Case, rope, sizes
from hf_expert_cases import EXPERT_CASES
from hf_further_cases import FURTHER_CASES
from hf_linear_cases import LINEAR_CASES
from hf_recent_cases import RECENT_CASES
from hf_wrapper_cases import WRAPPER_CASES

__all__ = ["CASES", "Case"]


#: All cases.
CASES = (
    *EXPERT_CASES,
    *WRAPPER_CASES,
    *RECENT_CASES,
    *LINEAR_CASES,
    *FURTHER_CASES,
    # Small embeddings, so that the epsilon of the first norm is a tenth of the mean square it is added to.
    Case("llama_grouped", "llama", sizes((97, 48, 80, 2, 6, 2), rms_norm_eps=1e-05), seed=11, embed_scale=0.01),
    # A head_dim that is not hidden / heads; a short original context: of eight wavelengths (6 to 20,000 positions) one
    # is kept, two are blended and five divided.
    Case(
        "llama_scaled_tied",
        "llama",
        sizes(
            (64, 32, 56, 3, 4, 2),
            head_dim=16,
            tie_word_embeddings=True,
            max_position_embeddings=512,
            rope_parameters=rope(
                "llama3",
                10000.0,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        seed=12,
    ),
    Case(
        "qwen3_untied",
        "qwen3",
        sizes((83, 40, 72, 2, 4, 1), head_dim=12, rope_parameters=rope("default", 1000000.0)),
        seed=13,
    ),
    Case(
        "qwen3_tied_sharded",
        "qwen3",
        sizes((71, 32, 48, 3, 6, 3), head_dim=10, tie_word_embeddings=True, rope_parameters=rope("default", 5000.0)),
        seed=14,
        max_shard_size="30KB",
    ),
    Case("llama_bfloat16", "llama", sizes((67, 48, 64, 2, 3, 3)), seed=15, dtype="bfloat16"),
    # Biases of queries, keys and values.
    Case("qwen2_biased", "qwen2", sizes((59, 36, 44, 2, 6, 2), rope_parameters=rope("default", 50000.0)), seed=16),
    # A head_dim that is not hidden / heads; no sliding window.
    Case(
        "mistral_whole",
        "mistral",
        sizes((53, 40, 36, 2, 4, 2), head_dim=12, sliding_window=None),
        seed=17,
        dtype="bfloat16",
    ),
    # Biases of all matrices, and a base that grows from the 15th token on.
    Case(
        "llama_dynamic_biased",
        "llama",
        sizes(
            (47, 30, 34, 2, 5, 1),
            attention_bias=True,
            mlp_bias=True,
            max_position_embeddings=14,
            rope_parameters=rope("dynamic", 3000.0, factor=4.0),
        ),
        seed=18,
    ),
    # A window in all layers.
    Case("mistral_window", "mistral", sizes((43, 32, 28, 2, 4, 2), sliding_window=6), seed=19, dtype="bfloat16"),
    # A window in the last two layers of three.
    Case(
        "qwen3_windows",
        "qwen3",
        sizes(
            (41, 28, 26, 3, 4, 2),
            head_dim=10,
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=7,
            max_window_layers=1,
        ),
        seed=20,
        dtype="bfloat16",
    ),
    # Fused tensors, a window, and a rotation of four elements of each head's six.
    Case(
        "phi3_partial",
        "phi3",
        sizes(
            (61, 36, 40, 2, 6, 2),
            sliding_window=9,
            pad_token_id=0,
            rope_parameters=rope("default", 10000.0, partial_rotary_factor=0.7),
        ),
        seed=21,
        dtype="bfloat16",
    ),
    # Two sets of divisors, the second from the 17th token on; stored as float16.
    Case(
        "phi3_longrope",
        "phi3",
        sizes(
            (45, 32, 22, 2, 4, 4),
            pad_token_id=0,
            max_position_embeddings=64,
            original_max_position_embeddings=16,
            rope_parameters=rope(
                "longrope", 2000.0, short_factor=[1.0, 1.1, 1.3, 1.7], long_factor=[1.2, 2.5, 4.0, 9.0]
            ),
        ),
        seed=22,
        dtype="float16",
    ),
    # Norms after the blocks alone, norms over all heads; a ramp between kept and divided frequencies.
    Case(
        "olmo2_yarn",
        "olmo2",
        sizes(
            (57, 40, 38, 2, 5, 1),
            max_position_embeddings=256,
            rope_parameters=rope("yarn", 600.0, factor=4.0, beta_fast=6.0, original_max_position_embeddings=64),
        ),
        seed=23,
        dtype="bfloat16",
    ),
    # Its four multipliers, biases of attention, divided frequencies.
    Case(
        "granite_linear",
        "granite",
        sizes(
            (51, 36, 42, 2, 6, 3),
            attention_bias=True,
            tie_word_embeddings=True,
            embedding_multiplier=3.5,
            attention_multiplier=0.3,
            residual_multiplier=0.4,
            logits_scaling=2.5,
            rope_parameters=rope("linear", 10000.0, factor=3.0),
        ),
        seed=24,
        dtype="bfloat16",
    ),
    # Layers 1 and 3 of 0 to 3 are not rotated.
    Case(
        "smollm3_unrotated",
        "smollm3",
        sizes(
            (49, 32, 30, 4, 4, 2), no_rope_layer_interval=2, pad_token_id=0, rope_parameters=rope("default", 20000.0)
        ),
        seed=25,
        dtype="bfloat16",
    ),
    # Soft caps that bite, windows in layers 0 and 2, a scale of scores that is none of the usual ones.
    Case(
        "gemma2_capped",
        "gemma2",
        sizes(
            (55, 36, 32, 3, 4, 2),
            head_dim=10,
            query_pre_attn_scalar=7,
            sliding_window=5,
            attn_logit_softcapping=1.5,
            final_logit_softcapping=2.5,
        ),
        seed=26,
        embed_scale=0.2,
        dtype="bfloat16",
    ),
    # Layers with a window have a rotation of their own; the other one's frequencies are divided.
    Case(
        "gemma3_local",
        "gemma3_text",
        sizes(
            (53, 32, 34, 4, 4, 1),
            head_dim=12,
            query_pre_attn_scalar=12,
            sliding_window=6,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters={
                "sliding_attention": rope("default", 300.0),
                "full_attention": rope("linear", 50000.0, factor=8.0),
            },
        ),
        seed=27,
        embed_scale=0.2,
        dtype="bfloat16",
    ),
    # Planes of neighbouring elements, half of each head; norms before and after the blocks; fused feed-forward tensors.
    Case(
        "glm4_interleaved", "glm4", sizes((46, 40, 26, 2, 4, 2), head_dim=12, pad_token_id=0), seed=28, dtype="bfloat16"
    ),
    Case(
        "glm_unbiased",
        "glm",
        sizes(
            (44, 32, 26, 2, 4, 1),
            head_dim=8,
            attention_bias=False,
            pad_token_id=0,
            rope_parameters=rope("default", 10000.0, partial_rotary_factor=0.75),
        ),
        seed=29,
        dtype="bfloat16",
    ),
    # Learned positions, layer norms, biases, no gate; heads of an odd size.
    Case(
        "opt_learned",
        "opt",
        {
            "vocab_size": 63,
            "hidden_size": 35,
            "ffn_dim": 44,
            "num_hidden_layers": 2,
            "num_attention_heads": 5,
            "max_position_embeddings": 37,
            "word_embed_proj_dim": 35,
        },
        seed=30,
        dtype="float16",
    ),
)
