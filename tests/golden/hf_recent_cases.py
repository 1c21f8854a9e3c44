"""Checkpoints of dense families that came in 2025."""

from __future__ import annotations

from hf_case import Case, rope, sizes

#: One of each.
RECENT_CASES = (
    # Norms after the blocks alone, norms over all heads; windows in layers 0, 1 and 3, whose frequencies are not scaled.
    Case(
        "olmo3_windows",
        "olmo3",
        sizes(
            (52, 32, 30, 4, 4, 2),
            sliding_window=7,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            max_position_embeddings=256,
            rope_parameters={
                "sliding_attention": rope("default", 700.0),
                "full_attention": rope("yarn", 700.0, factor=8.0, original_max_position_embeddings=32),
            },
        ),
        seed=45,
        dtype="bfloat16",
    ),
    # Biases of queries, keys and values, and of what attention gives.
    Case(
        "seed_oss_biased",
        "seed_oss",
        sizes((47, 30, 26, 2, 6, 3), head_dim=8, attention_out_bias=True, pad_token_id=0),
        seed=46,
        dtype="bfloat16",
    ),
    # Planes of neighbouring elements, whole heads.
    Case(
        "ernie4_5_interleaved",
        "ernie4_5",
        sizes((45, 28, 22, 2, 4, 2), head_dim=10, use_bias=True),
        seed=47,
        dtype="bfloat16",
    ),
    # The same norms but those of heads; windows in layers 0, 1 and 3, and layer 2 is not rotated.
    Case(
        "exaone4_windows",
        "exaone4",
        sizes(
            (48, 30, 27, 4, 5, 1),
            head_dim=8,
            sliding_window=6,
            sliding_window_pattern=3,
            rope_parameters=rope("default", 2000.0),
        ),
        seed=50,
        dtype="bfloat16",
    ),
)
