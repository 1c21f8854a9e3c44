"""Settings that all commands which run a network share."""

from __future__ import annotations

import dataclasses

from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.fields import setting
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, NetworkScheme

__all__ = ["CommonConfig"]


@dataclasses.dataclass(frozen=True)
class CommonConfig(Settings):
    """Settings of every command that runs a network."""

    model: str = setting("embedded", "'embedded', a Hugging Face directory (Llama 3.x, Qwen3), or a container.")
    architecture: str = setting(
        "llama-3.1-8b", "Network that is priced: catalog name, 'own', or a Hugging Face config.json."
    )
    device: tuple[str, ...] = setting(
        ("rtx-4090",), "Device, several separated by commas, or TOML files of your own (see jaxspec devices)."
    )
    batch: int = setting(1, "Sequences decoded together, for the cost.", low=1, high=4096)
    context: int = setting(1024, "Cached tokens per sequence, for the cost.", low=0, high=10_000_000)
    scheme: NetworkScheme = setting(DEFAULT_SCHEME_NAME, "Storage scheme of the target and its draft.")
    text: str = setting("stdlib", "'stdlib', or a text file: its first half calibrates, its second half is held out.")
    temperature: float = setting(0.0, "Temperature of decoding; 0 is greedy.", low=0, high=10)
    top_k: int = setting(0, "Sample from the likeliest k tokens only; 0 is from all.", low=0, high=10_000_000)
    top_p: float = setting(
        1.0, "Sample from the likeliest tokens whose mass reaches p only; 1 is from all.", low=1e-6, high=1
    )
    prompts: int = setting(96, "Held-out prompts that are decoded.", low=1, high=100_000, quick=24)
    prompt_tokens: int = setting(128, "Tokens of a prompt.", low=2, high=1_000_000)
    output_tokens: int = setting(64, "Tokens decoded per prompt.", low=1, high=1_000_000, quick=32)
    calibration_prompts: int = setting(
        96, "Prompts from the training text that drafts are tuned on.", low=1, high=100_000, quick=24
    )
    seed: int = setting(0, "Seed of text windows, steps and samples.", low=0, high=2**31 - 1)

    unused = (
        Unused(
            ("top_k", "top_p"),
            lambda config: (
                "greedy decoding takes the likeliest token; give a temperature" if config.temperature == 0 else None
            ),
        ),
    )
