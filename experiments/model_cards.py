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

_TEXT = """({library:,} bytes of modules, {tests:,} bytes of their tests;
  {share:.0%} of the windows from the modules)"""

_NETWORK = (
    """
* **Data.** The source of Python's own standard library """
    + _TEXT
    + """, one byte per token, byte 0 before each file. PSF licence.
* **Held out**, never trained on, with their tests: {held_out}.
* **Score.** {bits_per_byte:.4f} bits per byte on the held-out modules (these bfloat16 weights, \
computed in float32; each byte scored
  once with at least 256 bytes of context). {comparison}
* **Training.** {steps} steps of {recipe[tokens_per_step]} tokens, windows of {recipe[window]} bytes, \
then {recipe[long_window]} for the last {long_share:.0%};
  Muon (matrices) and Adam, peak rate {recipe[peak_learning_rate]}, linear decay; seed {recipe[seed]}; on {machine}.
* **Limits.** It writes Python-like text, nothing more. Contexts beyond 512 bytes were never seen in training.
"""
)

#: Card -> its text. Braces are facts of the training run (see `training_facts`), of the network, or of the text.
_CARDS = {
    "embedded": """# The embedded network

A byte-level decoder of the Llama family ({layers} layers, width {width}, {parameters:,} parameters, bfloat16), trained from
scratch by `python -m experiments.train_embedded`. It exists so that jaxspec's measurements run on a real trained network on
any machine, without a download. It is small: acceptance measured on it is the acceptance of *this* network.
"""
    + _NETWORK.replace("{comparison}", "For comparison, `xz -9e` needs about 1.3 on the whole library at once."),
    "small": """# The small embedded network

A byte-level decoder of the Llama family ({layers} layers, width {width}, {parameters:,} parameters, bfloat16), trained from
scratch by `python -m experiments.train_embedded --shape small`. It exists to draft for the embedded network, with which it
shares its alphabet and its training text.
"""
    + _NETWORK.replace(
        "{comparison}",
        "As a draft, on text that the embedded network wrote after prompts from there,\n  {agreement}",
    ),
    "moe": """# The embedded mixture of experts

A byte-level decoder of the GLM-4 MoE family ({layers} layers, width {width}; each layer has {experts.num_experts} experts of \
{experts.inner_size} inner channels, {experts.per_token} per token,
and a shared one; {parameters:,} parameters, {active:,} per token, bfloat16), trained from
scratch by `python -m experiments.train_embedded --shape moe`. It exists so that drafts of mixtures of experts are measured on a
real trained router on any machine, without a download. It shares its alphabet and its training text with the embedded network.
"""
    + _NETWORK.replace(
        "{comparison}",
        """For comparison, the dense embedded network learned from
  {dense_tokens:,} bytes, this one from {tokens:,}.
* **Router load** on the held-out modules: share of the bytes that go through the least and the most chosen of the \
{experts.num_experts}
  experts ({mean_load:.1%} on average), and entropy of the choices (at most {most_entropy:.2f} bits), per layer:
{load}
* **Balance.** No loss asks for it. After each step, the score of an expert goes up for the choice if its load was below \
{recipe[load_band][0]} of the
  mean, and down if above {recipe[load_band][1]}, by {recipe[balance_rate]}, \
from step {recipe[balance_steeper][0]} on {recipe[balance_steeper][1]:g} times as much, \
falling to zero with the learning rate.""",
    ),
    "head": """# The embedded network's draft head

One decoder layer of width {width} between the embedding and the LM head of the embedded network, which it shares;
{parameters:,} parameters of its own, bfloat16, trained by `python -m experiments.train_draft_head`. It reads the network's last
hidden states, and its own predictions of them, and drafts for it. It is of no use to another network: config.json names the
weights that it belongs to.

* **Data.** The text of the embedded network """
    + _TEXT
    + """. PSF licence.
* **Held out**, never trained on, with their tests: {held_out}.
* **Score.** On text that the network wrote after prompts from the held-out modules,
  {agreement}
* **Training.** {steps} steps of {recipe[tokens_per_step]} tokens, windows of {recipe[window]} bytes, \
then {recipe[long_window]} for the last
  {long_share:.0%}; KL divergence from the network's distribution plus {recipe[feature_weight]} times \
the squared error of the (normed)
  hidden states, at depths 1 to {recipe[depth]} on its own predictions, each weighing \
{recipe[depth_discount]} of the one before, chains from every
  {recipe[root_every]}th place; Muon (matrices) and Adam, peak rate {recipe[peak_learning_rate]}, linear decay; \
seed {recipe[seed]}; on {machine}.
* **Limits.** Contexts beyond {recipe[long_window]} bytes were never seen in training.
""",
    "arithmetic": """# The arithmetic network

A byte-level decoder of the Llama family ({layers} layers, width {width}, {parameters:,} parameters, bfloat16), trained from
scratch by `python -m experiments.train_arithmetic`. It works out sums in steps, so that what several answers to one question
are worth can be measured where every answer, and every step of it, can be checked.

* **Task.** `47+38-9+20;` is answered by `85-9+20;76+20;96.`: each step works out the first two numbers of what is left.
  Three to six numbers below 100; no value on the way is negative, or 1000 or more.
* **Data.** Random problems with their right steps, drawn anew in every step of the training.
* **Held out**: problems drawn apart; one of three numbers may be among those of the training.
* **Score.** On {problems} held-out problems, 16 samples of each at temperature 1: {pass_at_1:.1%} of the samples end with
  the right value; among 4 samples at least one does in {pass_at_4:.1%} of the problems, among 16 in {pass_at_16:.1%}.
* **Training.** {steps} steps of {recipe[tokens_per_step]} tokens, of a schedule for {recipe[steps]}: it stops while the rate
  still falls, since a network that is hardly ever wrong has no use for more samples; Muon (matrices) and Adam,
  peak rate {recipe[peak_learning_rate]}; seed {recipe[seed]}; on {machine}.
* **Limits.** It does such sums, nothing more.
""",
    "judge": """# The judge of arithmetic

A byte-level decoder of the arithmetic network's shape ({layers} layers, width {width}, {parameters:,} parameters, bfloat16),
trained by `python -m experiments.train_arithmetic` from that network's weights on. It hardly errs itself, so the probability
that it gives to an answer, or to an answer's first steps, says whether they are right: an outcome score and a process score.

* **Data** and **held out**: as of the arithmetic network.
* **Score.** On {problems} held-out problems, 16 answers of the arithmetic network each: the answer that it finds most probable
  is right among 4 in {best_of_4:.1%} of the problems, among 16 in {best_of_16:.1%}; one answer alone in {best_of_1:.1%}.
* **Training.** {steps} steps of {recipe[tokens_per_step]} tokens more, while the rate falls to zero at step {recipe[steps]}
  of both together; Muon (matrices) and Adam; seed {recipe[seed]}; on {machine}.
* **Limits.** It judges such sums, written in such steps, nothing more.
""",
}


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
    """Write README.md beside the weights.

    Args:
        card: "embedded", "small", "moe", "head", "arithmetic" or "judge".
        facts: of `training_facts`, and what else the card names: scores, and of arithmetic how much was drawn.
    """
    text = _CARDS[card].format(
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
