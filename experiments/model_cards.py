"""Model cards of the networks and heads that ship with the package: README.md beside the weights."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.train_embedded.train import HELD_OUT, LIBRARY_SHARE, RECIPES, LoadSummary, Recipe
from jaxspec.models.config import DecoderConfig

__all__ = ["load_lines", "training_facts", "write_card"]


def training_facts(state: Mapping[str, Any], corpus: Mapping[str, np.ndarray], recipe: Recipe) -> dict[str, Any]:
    """What every card says of its training run.

    Args:
        state: of the last step.
        corpus: name -> text that it was trained on; empty where there is none.
    """
    return {
        "steps": int(state["step"]),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state["params"])),
        "training_bytes": {name: int(part.size) for name, part in corpus.items()},
        "recipe": dataclasses.asdict(recipe),
        "machine": f"{jax.default_backend()}, Python {platform.python_version()}, jax {jax.__version__}",
    }


def write_card(out: Path, card: str, config: DecoderConfig, facts: Mapping[str, Any]) -> None:
    """Write README.md beside the weights, from the text in `cards`, whose braces are facts.

    Args:
        card: "embedded", "small", "moe", "head", "arithmetic" or "judge".
        facts: of `training_facts`, and what else the card names: scores, and of arithmetic how much was drawn.
    """
    text = (
        Path(__file__)
        .with_name("cards")
        .joinpath(f"{card}.md")
        .read_text(encoding="utf-8")
        .format(
            layers=config.num_layers,
            width=config.hidden_size,
            library=facts["training_bytes"].get("library", 0),
            tests=facts["training_bytes"].get("tests", 0),
            share=LIBRARY_SHARE,
            held_out=", ".join(f"`{name}`" for name in HELD_OUT),
            long_share=1 - facts["recipe"]["long_from"],
            **_of_experts(config, facts),
            **{name: value for name, value in facts.items() if name != "training_bytes"},
        )
    )
    (out / "README.md").write_text(text, encoding="utf-8")


def _of_experts(config: DecoderConfig, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the card of a mixture of experts says beside the others."""
    own = config.experts
    if own is None:
        return {}
    routed = sum(
        math.prod(parameter.shape) * parameter.num_layers
        for name, parameter in config.layer_parameters.items()
        if name.startswith("expert_")
    )
    tokens = lambda recipe: recipe["steps"] * recipe["tokens_per_step"]
    return {
        "experts": own,
        "active": config.num_parameters() - routed * (own.num_experts - own.per_token) // own.num_experts,
        "tokens": tokens(facts["recipe"]),
        "dense_tokens": tokens(dataclasses.asdict(RECIPES["embedded"])),
        "mean_load": own.per_token / own.num_experts,
        "most_entropy": math.log2(own.num_experts),
    }


def load_lines(load: LoadSummary) -> str:
    """Lines of a model card: the router's load, a layer in each."""
    rows = zip(load.least, load.most, load.entropy, strict=True)
    return "\n".join(
        f"  - layer {layer}: {least:.1%} to {most:.1%}, {entropy:.2f} bits"
        for layer, (least, most, entropy) in enumerate(rows)
    )
