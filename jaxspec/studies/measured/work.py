"""What every stage of a run needs: settings, network, text, store of stages, progress, and what is priced."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels import write_trace
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.processes import ONE_PROCESS, Processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.settings import CommonConfig
from jaxspec.speculate.chunks import chunk_size
from jaxspec.speculate.sampling import Decoding
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs
from jaxspec.studies.measured.memory import plan_memory
from jaxspec.studies.measured.setup import Setup, make_setup
from jaxspec.tuning.objective import Pricing

__all__ = ["Work", "begin_work", "set_up", "way_of", "write_gains"]


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
        """Progress over so many prompts, which advances by chunks of them."""
        return self.reporter.bar(description, prompts, step=chunk_size(prompts))


def write_gains(work: Work, path: Path, gains: Mapping[str, np.ndarray], tokens: np.ndarray) -> None:
    """Write the trace of held-out prompts for `--acceptance-trace`.

    Args:
        gains: drafter -> "text start", tokens that a cycle gains at each token that follows a prompt.
        tokens: " text", so many follow each.
    """
    setup, rows = work.setup, []
    for place, (count, prompt) in enumerate(zip(tokens.tolist(), setup.prompt_lengths.tolist(), strict=True)):
        dataset = {"dataset": setup.categories[place]} if setup.categories else {}
        row = {"request": str(place), "prompt_tokens": prompt, "generated_tokens": count, **dataset}
        rows.append(row | {name: np.rint(each[place, :count]).astype(int) for name, each in gains.items()})
    write_trace(path, rows)


def begin_work(
    config: CommonConfig,
    directory: RunDirectory,
    reporter: Reporter,
    checked: CheckedInputs | None = None,
    *,
    gradient_windows: int = 0,
    drafts: Sequence[str] | None = None,
    processes: Processes = ONE_PROCESS,
) -> Work:
    """Load all that a configuration names.

    Args:
        checked: from `check_inputs`, which is called unless it is given.
        gradient_windows: windows of calibration text in each gradient step; 0: there are no such steps.
        drafts: names of those that the run holds at the same time; None: the one of the configuration.
        processes: that do all of it together.
    Raises:
        InputError: bad input.
    """
    checked = checked or check_inputs(config)
    setup = set_up(config, checked, reporter, gradient_windows=gradient_windows, drafts=drafts)
    stages = Stages(directory.checkpoints, processes, directory.check_inputs)
    return Work(config, setup, stages, reporter, checked.pricings, directory.inputs)


def set_up(
    config: CommonConfig,
    checked: CheckedInputs,
    reporter: Reporter,
    *,
    gradient_windows: int = 0,
    drafts: Sequence[str] | None = None,
) -> Setup:
    """Load a network with its text, told how much memory it will need. Arguments as for `begin_work`."""
    lengths = [len(prompt) for prompt in checked.prompts]
    memory = plan_memory(config, checked.network, lengths, gradient_windows=gradient_windows, drafts=drafts)
    reporter.line(memory.line)
    reporter.line(f"loading {config.model} ...")
    setup = make_setup(config, checked, stream=memory.stream, mesh=memory.mesh)
    for note in setup.notes:
        reporter.line(f"note: {note}")
    return setup


def way_of(decoding: Decoding) -> str:
    """How tokens are chosen, in names of stages."""
    return "greedy" if decoding.greedy else "sampled"
