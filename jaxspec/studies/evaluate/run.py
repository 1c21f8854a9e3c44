"""`jaxspec evaluate`: one draft with given knobs, measured, decoded and priced."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxspec.compress import Knobs, Scheme, knobs_from_json, uniform_knobs
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.runs.carrying_out import carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect, knob_values
from jaxspec.studies.evaluate.config import EvaluateConfig
from jaxspec.studies.measured.measuring import Measuring


def read_tuned_knobs(path: str, scheme: Scheme, config: DecoderConfig) -> Knobs:
    """The tuned knobs of the first device in a result.json.

    Raises:
        InputError: no such file, no tuned configuration in it, or knobs of another network.
    """
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))[0]["configurations"]["tuned"]["knobs"]
    except OSError as error:
        raise InputError(f"knobs {path!r} cannot be read ({error.strerror}); give a result.json") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{path!r} holds no tuned knobs; give the result.json of `jaxspec tune`") from error
    return knobs_from_json(raw, scheme, config)


def evaluate(
    config: EvaluateConfig,
    *,
    out: str | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> tuple[list[dict[str, Any]], RunDirectory]:
    """Measure one draft for every device of the configuration.

    Returns:
        Entries like those of `tune`, with the single configuration "given"; and the run directory.
    Raises:
        InputError: bad input; nothing is lost.
    """

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[dict[str, Any]]]:
        run = Measuring(config, directory, reporter)
        run.given = {"given": ("knobs", "draft_length")}
        knobs = _given_knobs(config, run.setup.scheme, run.setup.config)
        return lambda: [run.entry(device, {"given": knobs}, hero="given") for device in run.pricings]

    expect(EvaluateConfig, config)
    return carry_out("evaluate", config, prepare, out=out, force=force, reporter=reporter)


def _given_knobs(config: EvaluateConfig, scheme: Scheme, network: DecoderConfig) -> Knobs:
    """Those of an earlier run, or the same everywhere."""
    if config.knobs is not None:
        return read_tuned_knobs(config.knobs, scheme, network)
    return uniform_knobs(scheme, network, knob_values(config), draft_length=config.draft_length)
