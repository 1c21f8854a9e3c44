"""The configurations of commands that run a network: `tune`, `evaluate` and `tree`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.draft import KnobSettings, knobs_of_other_schemes
from jaxspec.settings.draft_kinds import DRAFT_HELP, SELF, check_draft_name
from jaxspec.settings.fields import hints, setting
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, KNOBS, NetworkScheme

__all__ = [
    "QUICK",
    "CommonConfig",
    "EvaluateConfig",
    "TreeConfig",
    "TuneConfig",
    "quick_settings",
]

#: What a tuning run makes best.
Objective = Literal["speedup", "kl", "bits_per_byte"]
#: How trees of drafted tokens grow.
Search = Literal["prior", "width", "depth", "greedy"]


@dataclasses.dataclass(frozen=True)
class CommonConfig(Settings):
    """What every command that runs a network needs to know."""

    model: str = setting("embedded", "'embedded', a Hugging Face directory (Llama 3.x, Qwen3), or a container.")
    architecture: str = setting(
        "llama-3.1-8b", "Whose cost is predicted: catalog name, 'own', or a Hugging Face config.json."
    )
    device: tuple[str, ...] = setting(
        ("rtx-4090",), "Device, several separated by commas, or TOML files of your own (see jaxspec devices)."
    )
    batch: int = setting(1, "Sequences decoded together, for the cost.", low=1, high=4096)
    context: int = setting(1024, "Cached tokens per sequence, for the cost.", low=0, high=10_000_000)
    scheme: NetworkScheme = setting(DEFAULT_SCHEME_NAME, "How the target and its draft are stored.")
    text: str = setting("stdlib", "'stdlib', or a text file: its first half calibrates, its second half is held out.")
    temperature: float = setting(0.0, "Of decoding; 0 is greedy.", low=0, high=10)
    prompts: int = setting(96, "Held-out prompts that are decoded.", low=1, high=100_000)
    prompt_tokens: int = setting(128, "Tokens of a prompt.", low=2, high=1_000_000)
    output_tokens: int = setting(64, "Tokens decoded per prompt.", low=1, high=1_000_000)
    calibration_prompts: int = setting(
        96, "Prompts from the training text that drafts are tuned on.", low=1, high=100_000
    )
    seed: int = setting(0, "Decides windows of text, steps and samples.", low=0, high=2**31 - 1)


@dataclasses.dataclass(frozen=True)
class TuneConfig(CommonConfig):
    """`jaxspec tune`."""

    objective: Objective = setting("speedup", "What is made best; kl and bits_per_byte within --draft-bits.")
    max_kl: float | None = setting(
        None, "Constraint: KL to the target, nats per token.", low=1e-6, high=100, unset="none"
    )
    max_bits_per_byte: float | None = setting(
        None, "Constraint: bits per byte of the draft on calibration text.", low=1e-6, high=100, unset="none"
    )
    draft_bits: float | None = setting(
        None,
        "Constraint: mean bits per weight that a draft step reads.",
        low=0.5,
        high=16,
        unset="none, or with kl and bits_per_byte those of Cassandra's 40 %/4 bits",
    )
    steps: int = setting(60, "Gradient steps over all knobs.", low=1, high=100_000)
    uniform_steps: int = setting(15, "Gradient steps over one pair for all matrices.", low=1, high=100_000)
    learning_rate: float = setting(0.03, "Of Adam, knobs scaled to 0..1.", low=1e-6, high=1)
    windows_per_step: int = setting(16, "Windows of calibration text per gradient step.", low=1, high=100_000)
    surrogate_temperature: float = setting(0.5, "Of the smooth acceptance, under greedy decoding.", low=0.05, high=10)

    unused = (
        Unused(
            ("surrogate_temperature",),
            lambda config: "it smooths greedy decoding, and temperature is above 0" if config.temperature > 0 else None,
            refused=False,
        ),
        Unused(
            ("max_kl",),
            lambda config: "objective kl makes KL as small as it can" if config.objective == "kl" else None,
        ),
        Unused(
            ("max_bits_per_byte",),
            lambda config: (
                "objective bits_per_byte makes them as few as it can" if config.objective == "bits_per_byte" else None
            ),
        ),
    )


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(KnobSettings, CommonConfig):
    """`jaxspec evaluate`."""

    draft_length: int = setting(5, "Tokens drafted per cycle.", low=1, high=MAX_DRAFT_LENGTH)
    knobs: str | None = setting(
        None,
        "result.json of a tuning run: take the tuned knobs of its first device instead.",
        unset="none",
    )

    unused = (
        *knobs_of_other_schemes(),
        Unused(
            (*KNOBS, "draft_length"),
            lambda config: "knobs takes all of them from a tuning run" if config.knobs is not None else None,
        ),
    )


@dataclasses.dataclass(frozen=True)
class TreeConfig(KnobSettings, CommonConfig):
    """`jaxspec tree`."""

    draft: str = setting(
        SELF,
        DRAFT_HELP,
        check=check_draft_name,
    )
    nodes: int = setting(32, "Drafted tokens of the largest tree; verifying it takes one token more.", low=1, high=512)
    depth: int = setting(8, "Drafted tokens below one another, at most.", low=1, high=64)
    search: Search = setting("prior", "How trees grow.")
    contexts: tuple[int, ...] = setting(
        (128, 512, 2048, 4096, 8192, 16384),
        "Context lengths to decide at, beside --context, separated by commas.",
        low=0,
        high=10_000_000,
    )

    unused = (
        *knobs_of_other_schemes(),
        Unused(
            (*KNOBS, "scheme"),
            lambda config: None if config.draft == SELF else f"draft {config.draft!r} is not a compressed copy",
        ),
    )


#: What `--quick` changes: a look at everything, with wider error bars.
QUICK = {
    "prompts": 24,
    "output_tokens": 32,
    "calibration_prompts": 24,
    "steps": 15,
    "uniform_steps": 5,
    "nodes": 16,
    "depth": 6,
}


def quick_settings(kind: type[Settings]) -> dict[str, int]:
    """What `--quick` changes in a configuration: build_config(TuneConfig, quick_settings(TuneConfig), ...)."""
    return {name: value for name, value in QUICK.items() if name in hints(kind)}
