"""A finished run, opened to export its draft: which command made it, its settings, and one of its configurations."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxspec.compress.knob_files import knobs_from_json
from jaxspec.compress.knobs import Knobs
from jaxspec.errors import InputError
from jaxspec.formats.shard_index import read_json_object
from jaxspec.results.network_results import Configuration, ConfigurationsResult
from jaxspec.runs.inputs import changed_inputs
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.runs.steady_inputs import SteadyInputs
from jaxspec.runs.unchanged import RECORD, check_result_file, check_settings_file, read_object
from jaxspec.settings import CommonConfig
from jaxspec.settings.base import build_config
from jaxspec.settings.coercion import shown
from jaxspec.settings.draft_kinds import SELF, check_draft_name
from jaxspec.settings.fields import key_of
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.settings.toml import read_layer
from jaxspec.speculate.drafts.making import kind_of
from jaxspec.studies.evaluate.run import evaluate_drafts
from jaxspec.studies.measured.checking import check_inputs
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.work import Work, set_up
from jaxspec.studies.registry import find_study
from jaxspec.studies.tune.run import tune_drafts
from jaxspec.suggestions import hint

__all__ = ["FinishedRun", "open_run"]

#: Command -> its configuration that is meant where none is named, and how its drafts are made.
_COMMANDS: dict[str, tuple[str, Callable[[Any, Work], HardDrafts]]] = {
    "tune": ("tuned", tune_drafts),
    "evaluate": ("given", evaluate_drafts),
}

#: The command whose runs have drafts of other kinds.
_TREE = "tree"

#: Numbers of a configuration that an export tells, or is made by.
_NEEDED = ("knobs", "draft_length", "bits_per_weight", "speedup_vs_bf16_ar")

#: Why the head of a tree's run cannot be exported.
_HEAD = (
    "a draft head of this form cannot be exported: it mixes token and hidden state by one matrix before its layer, while "
    "EAGLE-3 as vLLM's speculators store it attends to the two side by side and keeps the hidden state as the residual; "
    "missing is a head trained in that form"
)


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """One configuration of a finished run on one device.

    Attributes:
        path: run directory; `command` made it.
        result: of the device.
        inputs: SHA-256 of every file that the run's settings name, unchanged since.
        check_inputs: raises InputError where one of those files is another one by now.
    """

    path: Path
    command: str
    config: CommonConfig
    result: ConfigurationsResult
    configuration: str
    inputs: dict[str, str]
    check_inputs: Callable[[], None]

    @property
    def found(self) -> Configuration:
        """What the run found of the configuration."""
        return self.result.configurations[self.configuration]

    def drafts(self, scratch: Path, reporter: Reporter) -> HardDrafts:
        """Calibration text of the run and its drafts.

        Args:
            scratch: where stages are kept whose results the run directory has no longer: nothing is written into it.
        Raises:
            InputError: something that the run's settings name cannot be used.
        """
        kept = (self.path / "checkpoints").absolute()
        stages = Stages(kept if (kept / "stages" / "calibration_text").exists() else scratch)
        checked = check_inputs(self.config)
        setup = set_up(self.config, checked, reporter)
        work = Work(self.config, setup, stages, reporter, checked.pricings, self.inputs)
        return _COMMANDS[self.command][1](self.config, work)

    def knobs(self, drafts: HardDrafts) -> Knobs:
        """The configuration's knobs.

        Raises:
            InputError: the result holds none that fit the network.
        """
        setup = drafts.work.setup
        return knobs_from_json(self.found.knobs.known, setup.scheme, setup.config)


def open_run(path: str, *, configuration: str | None = None, device: str | None = None) -> FinishedRun:
    """Open a finished run.

    Args:
        configuration: of it; None: that which the run was made for.
        device: of it; None: the first.
    Raises:
        InputError: no run of a command whose draft can be exported, an unfinished one, one whose inputs changed, or an unknown
            configuration or device.
    """
    place = Path(path)
    if not os.path.isfile(place / "config.toml"):
        raise InputError(
            f"run {path!r} is no run directory (it has no config.toml); give one of `jaxspec tune` or `jaxspec evaluate`"
        )
    check_settings_file(place)
    check_result_file(place, read_object(place / RECORD))
    layer = read_layer(place / "config.toml")
    command = next((name for name in (*_COMMANDS, _TREE) if set(layer.values) <= _keys(name)), None)
    if command is None:
        raise InputError(f"run {path!r} has no draft to export; give a run of `jaxspec tune` or `jaxspec evaluate`")
    if command == _TREE:
        raise InputError(_about_tree(str(layer.values.get("draft", SELF))))
    config = build_config(find_study(command).config, layer)
    assert isinstance(config, CommonConfig)
    if not (place / "result.json").is_file():
        raise InputError(f"run {path!r} is not finished; run the same `jaxspec {command}` again, which resumes it")
    results = ConfigurationsResult.load(place / "result.json")
    if not any(result.configurations for result in results):
        raise InputError(f"{place / 'result.json'} holds no configurations; start the run anew with --force")
    result = _of_device(results, device)
    if not SCHEME_FACTS[config.scheme].has_draft:
        able = [name for name, facts in SCHEME_FACTS.items() if facts.runs and facts.has_draft]
        raise InputError(
            f"run {path!r} has no draft to export: of scheme {config.scheme} it is the target itself; export a run of one of "
            f"{', '.join(able)}"
        )
    wanted = configuration or _COMMANDS[command][0]
    if wanted not in result.configurations:
        raise InputError(f"configuration {shown(wanted)} is unknown{hint(wanted, sorted(result.configurations))}")
    for name in _NEEDED:
        if getattr(result.configurations[wanted], name).value is None:
            raise InputError(
                f"{place / 'result.json'} holds no {name} of {wanted}; run the same `jaxspec {command}` with --force"
            )
    steady = SteadyInputs(config)
    inputs = _same_inputs(place, steady)
    return FinishedRun(place, command, config, result, wanted, inputs, steady.check)


def _keys(command: str) -> set[str]:
    return {key_of(field) for field in dataclasses.fields(find_study(command).config)}


def _about_tree(draft: str) -> str:
    """Why the draft of a run of `jaxspec tree` is not exported, and what to do."""
    check_draft_name(draft)
    kind = kind_of(draft)
    if kind.calibrated:
        return "a run of `jaxspec tree` has no tuned chain; `jaxspec evaluate` its knobs, and export that run"
    if kind.directory == "head":
        return _HEAD
    if kind.directory:
        return f"draft {draft!r} is a network of its own; give its directory to the engine as it is"
    if kind.suffix:
        return f"draft {draft!r} lies in a container; `jaxspec evaluate` its knobs, and export that run"
    if draft != "ngram":
        return f"draft {draft!r} is made of the target where it runs, and has no files that an engine could read"
    return f"draft {draft!r} has no weights; engines that draft so have it built in: vLLM and SGLang call it ngram"


def _of_device(results: list[ConfigurationsResult], device: str | None) -> ConfigurationsResult:
    by_device = {str(result.device): result for result in results}
    wanted = device or next(iter(by_device))
    if wanted not in by_device:
        raise InputError(f"device {shown(wanted)} is none of the run's{hint(wanted, by_device)}")
    return by_device[wanted]


def _same_inputs(place: Path, steady: SteadyInputs) -> dict[str, str]:
    """Digests of the files that the settings name, which are those of the run."""
    digests = steady.digest()
    steady.compare_with(digests)
    if (place / "inputs.json").is_file():
        recorded = read_json_object(place / "inputs.json")
        if changed := changed_inputs(recorded, digests):
            raise InputError(
                f"{', '.join(changed)} has changed since run {str(place)!r} or is gone; export where its files are as they "
                "were, or run it again"
            )
    return digests
