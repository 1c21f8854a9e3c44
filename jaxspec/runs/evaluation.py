"""`jaxspec evaluate`: one draft with given knobs, measured, decoded and priced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jaxspec.compress.knobs import Knobs, knobs_from_json, uniform_knobs
from jaxspec.errors import InputError
from jaxspec.files import plain
from jaxspec.models.config import DecoderConfig
from jaxspec.runs.config import EvaluateConfig
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.measuring import Measuring
from jaxspec.runs.progress import Reporter
from jaxspec.runs.setup import input_digests


def read_tuned_knobs(path: str, config: DecoderConfig) -> Knobs:
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
    return knobs_from_json(raw, config)


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
    reporter = reporter or Reporter()
    with RunDirectory("evaluate", config, inputs=input_digests(config), out=out, force=force) as directory:
        if (finished := directory.finished()) is not None:
            reporter.line(f"already finished: {directory.path} (--force starts anew)")
            return finished, directory
        run = Measuring(config, directory, reporter)
        if config.knobs is None:
            knobs = uniform_knobs(
                run.setup.config,
                weight_prune=config.weight_prune,
                weight_cut_bits=config.weight_cut_bits,
                kv_prune=config.kv_prune,
                kv_cut_bits=config.kv_cut_bits,
                draft_length=config.draft_length,
            )
        else:
            knobs = read_tuned_knobs(config.knobs, run.setup.config)
        entries = plain([run.entry(device, {"given": knobs}, hero="given") for device in run.pricings])
        directory.write_result(entries)
        return entries, directory
