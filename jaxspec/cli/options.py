"""Options that mean the same in every command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from jaxspec.errors import InputError
from jaxspec.files import to_json, write_text
from jaxspec.runs.config import QUICK, CommonConfig, CommonType, build_config, read_toml

Function = TypeVar("Function", bound=Callable[..., Any])

_PRICING = [
    click.option("--architecture", help="Whose cost is predicted: catalog name, 'own', or a Hugging Face config.json."),
    click.option(
        "--device", help="Device, several separated by commas, or TOML files of your own (see jaxspec devices)."
    ),
    click.option("--batch", type=int, help="Sequences decoded together, for the cost."),
    click.option("--context", type=int, help="Cached tokens per sequence, for the cost."),
]

_NETWORK = [
    click.option("--model", help="'embedded', or a Hugging Face directory (Llama 3.x, Qwen3)."),
    click.option("--scheme", help="Storage of pruned values: cassandra1 (raw) or cassandra1-coded."),
    click.option("--text", help="'stdlib', or a text file: its first half calibrates, its second half is held out."),
    click.option("--temperature", type=float, help="Of decoding; 0 is greedy."),
    click.option("--prompts", type=int, help="Held-out prompts that are decoded."),
    click.option("--prompt-tokens", type=int, help="Tokens of a prompt."),
    click.option("--output-tokens", type=int, help="Tokens decoded per prompt."),
    click.option("--calibration-prompts", type=int, help="Prompts from the training text that drafts are tuned on."),
    click.option("--seed", type=int, help="Decides windows of text, steps and samples."),
    click.option("--out", type=click.Path(), help="Run directory; default runs/<command>-<hash>."),
    click.option("--config", "config_file", type=click.Path(), help="TOML file of settings; flags win over it."),
    click.option("--quick", is_flag=True, help=f"Smaller run: {', '.join(f'{k} {v}' for k, v in QUICK.items())}."),
    click.option("--force", is_flag=True, help="Start the run directory anew."),
]

#: `--json FILE`, the same on every command.
json_option = click.option("--json", "json_file", type=click.Path(), help="Also write the result to this file.")


def _apply(options: list[Callable]) -> Callable[[Function], Function]:
    def decorate(function):
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


#: What is priced, and on what.
pricing_options = _apply(_PRICING)
#: Which network runs on which text, and where results go.
network_options = _apply([*_NETWORK, json_option])


def resolve(kind: type[CommonType], flags: dict[str, Any], config_file: str | None, quick: bool) -> CommonType:
    """Flag over file over (quick) default."""
    import dataclasses

    names = {field.name for field in dataclasses.fields(kind)}
    defaults = {key: value for key, value in QUICK.items() if quick and key in names}
    return build_config(kind, defaults, read_toml(config_file) if config_file else {}, flags)


def write_json(path: str | None, result: Any) -> None:
    """Write --json, whole or not at all."""
    if path:
        try:
            write_text(Path(path), to_json(result))
        except OSError as error:
            raise InputError(f"--json {path!r} cannot be written ({error.strerror}); give another file") from error


__all__ = ["CommonConfig", "json_option", "network_options", "pricing_options", "resolve", "write_json"]
