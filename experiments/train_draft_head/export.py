"""Model card of a draft head."""

from __future__ import annotations

from pathlib import Path

from experiments.train_embedded.corpus import HELD_OUT, LIBRARY_SHARE
from jaxspec.models.config import DecoderConfig

_CARD = """# The embedded network's draft head

One decoder layer of width {width} between the embedding and the LM head of the embedded network, which it shares;
{parameters:,} parameters of its own, bfloat16, trained by `python -m experiments.train_draft_head`. It reads the network's last
hidden states, and its own predictions of them, and drafts for it. It is of no use to another network: config.json names the
weights that it belongs to.

* **Data.** The text of the embedded network ({library:,} bytes of modules, {tests:,} bytes of their tests;
  {share:.0%} of the windows from the modules). PSF licence.
* **Held out**, never trained on, with their tests: {held_out}.
* **Score.** On text that the network wrote after prompts from the held-out modules,
  {agreement}
* **Training.** {steps} steps of {tokens} tokens, windows of {window} bytes, then {long_window} for the last
  {long_share:.0%}; KL divergence from the network's distribution plus {feature} times the squared error of the (normed)
  hidden states, at depths 1 to {depth} on its own predictions, each weighing {discount} of the one before, chains from every
  {every}th place; Muon (matrices) and Adam, peak rate {rate}, linear decay; seed {seed}; on {machine}.
* **Limits.** Contexts beyond {long_window} bytes were never seen in training.
"""


def write_head_card(out: Path, config: DecoderConfig, facts: dict) -> None:
    """Write README.md beside the weights."""
    recipe = facts["recipe"]
    text = _CARD.format(
        width=config.hidden_size,
        parameters=facts["parameters"],
        library=facts["training_bytes"]["library"],
        tests=facts["training_bytes"].get("tests", 0),
        share=LIBRARY_SHARE,
        held_out=", ".join(f"`{name}`" for name in HELD_OUT),
        agreement=facts["agreement"],
        steps=facts["steps"],
        tokens=recipe["tokens_per_step"],
        window=recipe["window"],
        long_window=recipe["long_window"],
        long_share=1 - recipe["long_from"],
        feature=recipe["feature_weight"],
        depth=recipe["depth"],
        discount=recipe["depth_discount"],
        every=recipe["root_every"],
        rate=recipe["peak_learning_rate"],
        seed=recipe["seed"],
        machine=facts["machine"],
    )
    (out / "README.md").write_text(text, encoding="utf-8")
