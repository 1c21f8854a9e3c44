"""Hard scores of drafts on calibration text and on held-out prompts, by their places in the unit box of all knobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from experiments.clock import medians_s
from jaxspec.compress.knobs import Knobs, harden
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.work import begin_work
from jaxspec.studies.tune.config import TuneConfig
from jaxspec.tuning.gradient import Ascent, Goal, ascend, ascend_once, first_state, from_coordinates, to_coordinates
from jaxspec.tuning.hard import best_length, grid_knobs, price_exactly

__all__ = ["Scores"]

#: Calls that a cost is the median of.
_REPEATS = 5


class Scores:
    """Network, texts and device of one seed: a `Contested`."""

    def __init__(self, config: TuneConfig, folder: str, reporter: Reporter):
        """Load all that the configuration names, and score the uniform grid.

        Args:
            folder: for what the target generates.
        """
        directory = RunDirectory("tune", config, inputs={}, out=folder, force=True)
        work = begin_work(config, directory, reporter, gradient_windows=config.windows_per_step)
        self._config, self._scheme, self._decoding = config, work.setup.scheme, work.setup.decoding
        self._drafts = HardDrafts(work, continuation_length(config.output_tokens))
        self._held_out = self._drafts.on_windows(work.setup.prompts, "held-out")
        (self._pricing,) = work.pricings.values()
        self._start = max(grid_knobs(self._scheme, work.setup.config), key=self._speedup)

    @cached_property
    def _flat(self) -> tuple[Any, Callable[..., Any]]:
        return self._flattened(self._start)

    @staticmethod
    def _flattened(knobs: Knobs) -> tuple[Any, Callable[..., Any]]:
        return ravel_pytree({name: value for name, value in to_coordinates(knobs).items() if name in knobs.values})

    @property
    def origin(self) -> np.ndarray:
        """The best point of the uniform grid."""
        return np.asarray(self._flat[0], np.float64)

    def _knobs(self, place: np.ndarray) -> Knobs:
        values = self._flat[1](jnp.asarray(place, jnp.float32))
        logits = jnp.zeros_like(self._start.draft_length_logits)
        return harden(from_coordinates(values | {"draft_length_logits": logits}, self._scheme))

    def _speedup(self, knobs: Knobs) -> float:
        return best_length(self._pricing, self._drafts.measure(knobs))[1]

    def speedup(self, place: np.ndarray) -> float:
        """Over 16-bit decoding, predicted from calibration text, cycles beginning at one offset."""
        return self._speedup(self._knobs(place))

    def held_out(self, place: np.ndarray) -> float:
        """Predicted from held-out prompts, cycles beginning everywhere, at the length that calibration text elects."""
        knobs = self._knobs(place)
        block = knobs.draft_length_logits.shape[0]
        length = best_length(self._pricing, self._drafts.measured_at(knobs, block))[0]
        priced = price_exactly(self._pricing, self._held_out.measured_at(knobs, block))
        return float(priced.speedup_vs_bf16_ar[length])

    def climbed(self) -> np.ndarray:
        """Where the gradient tuner ends, hardened."""
        config = self._config
        ascent = Ascent(steps=config.steps, learning_rate=config.learning_rate, seed=config.seed, tied=False)
        found = ascend(self._drafts.calibration, self._pricing, self._start, self._goal, ascent)
        return np.asarray(self._flattened(harden(found.last))[0], np.float64)

    @property
    def _goal(self) -> Goal:
        config = self._config
        decode = config.surrogate_temperature if self._decoding.greedy else config.temperature
        return Goal(windows_per_step=config.windows_per_step, decode_temperature=decode)

    def step_cost(self) -> float:
        """Processor time of a gradient step over that of a hard evaluation, both compiled."""
        state, number = first_state(self._start), jnp.asarray
        given = (self._drafts.calibration, self._pricing, number(0), number(0.03), number(0.1), number(False))
        step = lambda: ascend_once(state, *given, self._goal, self._scheme)
        own, other = medians_s((step, lambda: self._speedup(self._start)), _REPEATS, clock=time.process_time)
        return own / other
