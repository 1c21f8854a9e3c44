"""What every stage of a run needs: settings, network, text, store of stages, progress, and what is priced."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any

from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.settings import CommonConfig
from jaxspec.speculate.chunks import CHUNK
from jaxspec.speculate.sampling import Decoding
from jaxspec.studies.measured.setup import Setup, make_setup, resolve_pricing
from jaxspec.tune.objective import Pricing

__all__ = ["Work", "begin_work", "way_of"]


@dataclasses.dataclass(frozen=True, eq=False)
class Work:
    """A run that has begun.

    Attributes:
        pricings: by device, in the order of the configuration.
        inputs: SHA-256 of every file that the configuration names.
    """

    config: CommonConfig
    setup: Setup
    stages: Stages
    reporter: Reporter
    pricings: dict[str, Pricing]
    inputs: dict[str, str]

    def bar(self, description: str, prompts: int) -> AbstractContextManager[Any]:
        """Progress over the chunks of so many prompts."""
        return self.reporter.bar(description, -(-prompts // CHUNK))


def begin_work(config: CommonConfig, directory: RunDirectory, reporter: Reporter) -> Work:
    """Load all that a configuration names.

    Raises:
        InputError: bad input.
    """
    # Names are resolved before any work, so that a misspelt device costs nothing.
    own = config.architecture == "own"
    pricings = {} if own else {name: resolve_pricing(config, name, None) for name in config.device}
    reporter.line(f"loading {config.model} and its text ...")
    setup = make_setup(config)
    for note in setup.notes:
        reporter.line(f"note: {note}")
    if own:
        pricings = {name: resolve_pricing(config, name, setup.config) for name in config.device}
    return Work(config, setup, Stages(directory.checkpoints), reporter, pricings, directory.inputs)


def way_of(decoding: Decoding) -> str:
    """How tokens are chosen, in names of stages."""
    return "greedy" if decoding.greedy else "sampled"
