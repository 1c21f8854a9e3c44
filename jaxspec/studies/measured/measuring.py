"""What every command that runs a network does with hard drafts: calibrate, measure, decode, predict, make an entry."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Collection, Mapping
from functools import cached_property
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.compress.knob_files import knobs_to_json
from jaxspec.compress.knobs import Knobs, uniform_knobs
from jaxspec.compress.weights import hard_draft
from jaxspec.files import to_json
from jaxspec.models.decoder import Params
from jaxspec.report.assumptions import device_facts
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Arrays, Stages
from jaxspec.settings import CommonConfig
from jaxspec.speculate.chunks import CHUNK
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.measured.entries import configuration_entry
from jaxspec.studies.measured.setup import Setup, make_setup, resolve_pricing
from jaxspec.tune.calibration import Calibration, calibrate
from jaxspec.tune.hard import Decoding, measure_hard
from jaxspec.tune.objective import DraftMeasurement, Pricing, priced_footprint
from jaxspec.tune.proof import continuation_length, count_mismatches, decode_prompts, predict_cycles
from jaxspec.tune.statistics import speedup_ratio

SCHEMA_VERSION = 1

#: What losslessness is proven with, however a run decodes.
GREEDY = Decoding(greedy=True, temperature=0.0)


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    packages = ("jaxspec", "jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


class Measuring:
    """A network, its text and its stages, for one run.

    Attributes:
        calibrate_on_own_text: measure drafts on the calibration text as it was written, not on the target's own
            continuation of its prompts.
        given: configuration -> its metrics that are not the program's choice: "knobs", "draft_length".
    """

    calibrate_on_own_text = False
    pricings: dict[str, Pricing]

    def __init__(self, config: CommonConfig, directory: RunDirectory, reporter: Reporter):
        self.settings, self.directory, self.reporter = config, directory, reporter
        self.stages = Stages(directory.checkpoints)
        # Names are resolved before any work, so that a misspelt device costs nothing.
        own = config.architecture == "own"
        self.pricings = {} if own else {name: resolve_pricing(config, name, None) for name in config.device}
        reporter.line(f"loading {config.model} and its text ...")
        self.setup: Setup = make_setup(config)
        for note in self.setup.notes:
            reporter.line(f"note: {note}")
        if own:
            self.pricings = {name: resolve_pricing(config, name, self.setup.config) for name in config.device}
        self.given: Mapping[str, Collection[str]] = {}
        self.device_facts = {name: device_facts(name) for name in config.device}

    @property
    def continuation_tokens(self) -> int:
        """Tokens that the target puts out after a prompt where drafts are measured at every start."""
        return continuation_length(self.settings.output_tokens)

    @cached_property
    def calibration_text(self) -> np.ndarray:
        """Calibration prompts with what the target puts out after them; "text token". A stage."""
        settings, setup = self.settings, self.setup

        def compute() -> Arrays:
            if self.calibrate_on_own_text:
                return {"tokens": setup.calibration_prompts}
            with self._bar("continuing the calibration prompts", len(setup.calibration_prompts)) as bar:
                decoded = decode_prompts(
                    setup.params,
                    None,
                    setup.config,
                    setup.calibration_prompts[:, : settings.prompt_tokens],
                    knobs=uniform_knobs(setup.scheme, setup.config),
                    num_tokens=self.continuation_tokens,
                    decoding=setup.decoding,
                    seed=settings.seed,
                    advance=bar.advance,
                )
            return {"tokens": decoded["tokens"][:, : settings.prompt_tokens + self.continuation_tokens]}

        return self.stages.run("calibration_text", compute)["tokens"]

    @cached_property
    def calibration(self) -> Calibration:
        """Calibration text and everything ranked on it, which takes seconds and is no stage."""
        setup, first = self.setup, self.settings.prompt_tokens - 1
        text = jnp.asarray(self.calibration_text)
        return calibrate(setup.params, setup.config, text, scheme=setup.scheme, first=first)

    def measure(self, knobs: Knobs) -> DraftMeasurement:
        """The hard draft on calibration text."""
        return measure_hard(self.calibration, knobs, self.setup.decoding)

    def draft_params(self, knobs: Knobs) -> Params:
        """The hard draft's parameters, float32."""
        params = hard_draft(self.setup.params, self.calibration.prepared, knobs).params
        return jax.tree.map(lambda x: x.astype(jnp.float32), params)

    def decode_autoregressively(self, decoding: Decoding) -> Arrays:
        """Held-out prompts without a draft, long enough for predictions at every start."""
        setup, settings = self.setup, self.settings

        def compute() -> Arrays:
            with self._bar("decoding without a draft", len(setup.prompts)) as bar:
                return decode_prompts(
                    setup.params,
                    None,
                    setup.config,
                    setup.prompts,
                    knobs=uniform_knobs(setup.scheme, setup.config),
                    num_tokens=self.continuation_tokens,
                    decoding=decoding,
                    seed=settings.seed,
                    advance=bar.advance,
                )

        return self.stages.run(f"decoded/{way_of(decoding)}-autoregressive", compute)

    def decode(self, knobs: Knobs, decoding: Decoding, what: str) -> Arrays:
        """Held-out prompts with a hard draft. Stages are named by the knobs: what two devices share is decoded once."""
        setup, settings = self.setup, self.settings

        def compute() -> Arrays:
            with self._bar(f"decoding with the {what} draft", len(setup.prompts)) as bar:
                return decode_prompts(
                    setup.params,
                    self.draft_params(knobs),
                    setup.config,
                    setup.prompts,
                    knobs=knobs,
                    draft_length=knobs.draft_length,
                    num_tokens=settings.output_tokens,
                    room=self.continuation_tokens,  # shares the compilation of plain decoding
                    decoding=decoding,
                    seed=settings.seed,
                    advance=bar.advance,
                )

        return self.stages.run(f"decoded/{way_of(decoding)}-{_digest(knobs)}", compute)

    def predict(self, knobs: Knobs, what: str) -> Arrays:
        """Cycles of the held-out prompts, expected without decoding them."""
        setup, settings = self.setup, self.settings

        def compute() -> Arrays:
            length = settings.prompt_tokens + self.continuation_tokens
            texts = self.decode_autoregressively(setup.decoding)["tokens"][:, :length]
            with self._bar(f"predicting tokens per cycle, {what}", len(texts)) as bar:
                return predict_cycles(
                    setup.params,
                    self.draft_params(knobs),
                    setup.config,
                    texts,
                    prompt_tokens=settings.prompt_tokens,
                    num_tokens=settings.output_tokens,
                    knobs=knobs,
                    draft_length=knobs.draft_length,
                    decoding=setup.decoding,
                    advance=bar.advance,
                )

        return self.stages.run(f"predicted/{way_of(setup.decoding)}-{_digest(knobs)}", compute)

    def head(self, device: str) -> dict[str, Any]:
        """What every entry of result.json begins with: what ran, what was priced, with which settings, in which time."""
        settings, setup = self.settings, self.setup
        return {
            "schema_version": SCHEMA_VERSION,
            "model": {
                "name": setup.model_name,
                "parameters": setup.config.num_parameters(),
                "vocabulary": setup.config.vocab_size,
                "layers": setup.config.num_layers,
            },
            "architecture": settings.architecture,
            "device": device,
            **self.device_facts[device],
            "workload": {
                "batch": settings.batch,
                "context_tokens": settings.context,
                "prompt_tokens": settings.prompt_tokens,
                "output_tokens": settings.output_tokens,
            },
            "decoding": {
                "temperature": settings.temperature,
                "prompts": settings.prompts,
                "prompt_tokens": settings.prompt_tokens,
                "output_tokens": settings.output_tokens,
            },
            "scheme": settings.scheme,
            "text": setup.text.source,
            "seed": settings.seed,
            "statement": f"acceptance measured on {setup.model_name}, cost predicted for {settings.architecture}",
            "timing_s": dict(self.stages.timing_s),
            "versions": versions(),
        }

    def entry(self, device: str, chosen: dict[str, Knobs], *, hero: str) -> dict[str, Any]:
        """One device's entry of result.json.

        Args:
            chosen: hard knobs by configuration.
            hero: the configuration that is proven lossless and compared with the others.
        """
        settings, setup, pricing = self.settings, self.setup, self.pricings[device]
        configurations, speeds = {}, {}
        measured = {name: self.measure(knobs) for name, knobs in chosen.items()}
        for name, knobs in chosen.items():
            counted = self.decode(knobs, setup.decoding, name)
            configurations[name] = configuration_entry(
                knobs,
                measured=measured[name],
                counted=counted,
                predicted=self.predict(knobs, name),
                pricing=pricing,
                seed=settings.seed,
                given=self.given.get(name, ()),
            )
            speeds[name] = (counted["generated"], counted["cycles"], configurations[name]["cycle"]["total_s"])
        lossless = self._lossless(chosen[hero], hero)  # before the head, which tells how long the stages took
        return self.head(device) | {
            "pays": configurations[hero]["speedup_vs_stored_ar"] > 1.0,
            "configurations": configurations,
            "ratios": {
                f"{hero}_vs_{other}": speedup_ratio(speeds[hero], speeds[other], settings.seed)._asdict()
                for other in chosen
                if other != hero
            },
            "lossless": lossless,
            # Of what stands beside the configurations, which have statuses of their own.
            "status": {
                "pays": "predicted",
                "ratios": "predicted",
                "lossless": "measured",
                "timing_s": "measured",
                "workload": "input",
                "decoding": "input",
            },
            **kernel_notes(pricing.device, [priced_footprint(found.footprint) for found in measured.values()]),
        }

    def _lossless(self, knobs: Knobs, what: str) -> dict[str, Any]:
        """Greedy equality; where the run itself samples, greedy decoding is run for this alone."""
        return count_mismatches(
            self.decode(knobs, GREEDY, what),
            self.decode_autoregressively(GREEDY),
            self.settings.prompt_tokens,
            self.settings.output_tokens,
        )

    def _bar(self, description: str, prompts: int):
        return self.reporter.bar(description, -(-prompts // CHUNK))


def way_of(decoding: Decoding) -> str:
    """How tokens are chosen, in names of stages."""
    return "greedy" if decoding.greedy else "sampled"


def _digest(knobs: Knobs) -> str:
    return hashlib.sha256(to_json(knobs_to_json(knobs)).encode()).hexdigest()[:12]
