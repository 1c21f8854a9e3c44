"""Memory that ran out, as one line that says what to change."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import jax

from jaxspec.errors import InputError, one_line
from jaxspec.settings.base import Settings

__all__ = ["told_in_one_line"]

#: What XLA says, in whatever it was asked to do, and what it says of a host that cannot give a layer.
_SIGNS = ("RESOURCE_EXHAUSTED", "OUT_OF_MEMORY", "MemoryError", "out of memory", "Out of memory")

#: Settings that a run takes less memory with, and how.
_SAVERS = {
    "calibration_prompts": "fewer --calibration-prompts",
    "windows_per_step": "fewer --windows-per-step",
    "prompts": "fewer --prompts",
    "prompt_tokens": "fewer --prompt-tokens",
}


@contextlib.contextmanager
def told_in_one_line(config: Settings) -> Iterator[None]:
    """Within the block, memory that runs out is bad input: of a network, or of settings, that are too large for the machine.

    Raises:
        InputError: memory ran out.
    """
    try:
        yield
    except MemoryError as error:
        raise InputError(_line(config, error)) from error
    except jax.errors.JaxRuntimeError as error:
        if not any(sign in str(error) for sign in _SIGNS):
            raise
        raise InputError(_line(config, error)) from error


def _line(config: Settings, error: BaseException) -> str:
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    streams = ["--stream"] if "stream" in values and not values["stream"] else []
    advice = [*streams, *(words for name, words in _SAVERS.items() if name in values), "a device with more memory"]
    said = one_line(error)
    said = said if len(said) <= 160 else f"{said[:159]}…"
    return f"memory ran out ({said or 'of the host'}); use {', '.join(advice[:-1])}{' or ' * (len(advice) > 1)}{advice[-1]}"
