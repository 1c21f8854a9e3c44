"""Weights and model cards of the embedded networks, as Hugging Face directories of the Llama family."""

from __future__ import annotations

from pathlib import Path

from experiments.train_embedded.corpus import HELD_OUT, LIBRARY_SHARE
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.hf_export import save_directory

_OPENINGS = {
    "embedded": """# The embedded network

A byte-level decoder of the Llama family ({layers} layers, width {width}, {parameters:,} parameters, bfloat16), trained from
scratch by `python -m experiments.train_embedded`. It exists so that jaxspec's measurements run on a real trained network on
any machine, without a download. It is small: acceptance measured on it is the acceptance of *this* network.
""",
    "small": """# The small embedded network

A byte-level decoder of the Llama family ({layers} layers, width {width}, {parameters:,} parameters, bfloat16), trained from
scratch by `python -m experiments.train_embedded --shape small`. It exists to draft for the embedded network, with which it
shares its alphabet and its training text.
""",
}

_CARD = """
* **Data.** The source of Python's own standard library ({library:,} bytes of modules, {tests:,} bytes of their tests;
  {share:.0%} of the windows from the modules), one byte per token, byte 0 before each file. PSF licence.
* **Held out**, never trained on, with their tests: {held_out}.
* **Score.** {bits:.4f} bits per byte on the held-out modules (these bfloat16 weights, computed in float32; each byte scored
  once with at least 256 bytes of context). {comparison}
* **Training.** {steps} steps of {tokens} tokens, windows of {window} bytes, then {long_window} for the last {long_share:.0%};
  Muon (matrices) and Adam, peak rate {rate}, linear decay; seed {seed}; on {machine}.
* **Limits.** It writes Python-like text, nothing more. Contexts beyond 512 bytes were never seen in training.
"""


def export_directory(params: Params, config: DecoderConfig, out: Path) -> None:
    """Write config.json and model.safetensors (bfloat16) to `out`."""
    save_directory(params, config, out, max_positions=512)


def write_model_card(out: Path, shape: str, config: DecoderConfig, facts: dict) -> None:
    """Write README.md beside the weights.

    Args:
        shape: which of the networks it is.
        facts: with "agreement" for one that drafts.
    """
    recipe = facts["recipe"]
    comparison = "For comparison, `xz -9e` needs about 1.3 on the whole library at once."
    if "agreement" in facts:
        wrote = "on text that the embedded network wrote after prompts from there"
        comparison = f"As a draft, {wrote},\n  {facts['agreement']}"
    text = (_OPENINGS[shape] + _CARD).format(
        comparison=comparison,
        layers=config.num_layers,
        width=config.hidden_size,
        parameters=config.num_parameters(),
        library=facts["training_bytes"]["library"],
        tests=facts["training_bytes"].get("tests", 0),
        share=LIBRARY_SHARE,
        held_out=", ".join(f"`{name}`" for name in HELD_OUT),
        bits=facts["bits_per_byte"],
        steps=facts["steps"],
        tokens=recipe["tokens_per_step"],
        window=recipe["window"],
        long_window=recipe["long_window"],
        long_share=1 - recipe["long_from"],
        rate=recipe["peak_learning_rate"],
        seed=recipe["seed"],
        machine=facts["machine"],
    )
    (out / "README.md").write_text(text, encoding="utf-8")
