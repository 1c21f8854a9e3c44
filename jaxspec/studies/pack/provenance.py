"""Whether the run that knobs come from had the weights that are packed with them."""

from __future__ import annotations

import os
from pathlib import Path

from jaxspec.formats.container import WEIGHTS_SUFFIX
from jaxspec.runs.directory import is_run_directory
from jaxspec.runs.inputs import changed_inputs, input_digests
from jaxspec.runs.kept import find_run
from jaxspec.runs.progress import Reporter
from jaxspec.studies.pack.config import PackConfig

__all__ = ["of_other_weights"]


def of_other_weights(config: PackConfig, reporter: Reporter) -> str | None:
    """What to tell where the run of `knobs` recorded digests of other weights; None where they are the same, or not known.

    Not refused: knobs that were tuned on a network may be meant for one that was trained on from it.

    Raises:
        InputError: the run's files are damaged.
    """
    if config.knobs is None or not is_run_directory(folder := Path(config.knobs).parent):
        return None
    weights = {name: digest for name, digest in find_run(folder).inputs.items() if _is_weights(name)}
    if not weights or not (changed := changed_inputs(weights, input_digests(config, reporter))):
        return None
    return (
        f"{', '.join(changed)} is not what run {str(folder)!r} was made with, or is gone; acceptance that it found is not "
        "this draft's"
    )


def _is_weights(name: str) -> bool:
    """Of the model's folder alone: keys of other networks have their folder before the name."""
    return name.endswith(WEIGHTS_SUFFIX) and os.path.basename(name) == name
