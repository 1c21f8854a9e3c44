"""A colour for each part of a step, the same in all figures."""

from __future__ import annotations

from jaxspec.report.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW

__all__ = ["OPERATOR_COLOURS"]

#: Neighbours differ in lightness as well as in hue; attention projections are blue, the feed-forward network warm.
OPERATOR_COLOURS = {
    "embed": "#6e6e6e",
    "qkv": BLUE,
    "latent": SKY,
    "attention": GREEN,
    "linear_attention": "#00483a",
    "o": "#9ed2f0",
    "gate_up": VERMILLION,
    "down": YELLOW,
    "router": "#1d4f78",
    "expert_gate_up": ORANGE,
    "expert_down": "#f6d9a8",
    "shared_gate_up": "#8c3b00",
    "shared_down": "#c9a227",
    "norm": "#9b9b9b",
    "lm_head": PURPLE,
    "all_reduce": "#3b3b3b",
    "all_gather": "#b7b7b7",
    "reduce_scatter": "#525252",
    "all_to_all": "#d4a0c0",
    "send": "#dcdcdc",
    "kv_encoding": "#7a4a2b",
}
