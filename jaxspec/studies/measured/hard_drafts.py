"""Stage: calibration text, and hard drafts made and measured on it."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.compress.knobs import Knobs, uniform_knobs, write_norms
from jaxspec.compress.weights import HEAD, hard_draft
from jaxspec.models.apart import columns_first
from jaxspec.models.decoder import Params
from jaxspec.models.mesh import on_host
from jaxspec.models.special_tokens import head_of
from jaxspec.models.stored import as_computed
from jaxspec.models.streamed import is_streamed
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.stages import Arrays
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import ReadyDraft, compressed_copy
from jaxspec.speculate.proof import continue_texts
from jaxspec.studies.measured.run_context import RunContext
from jaxspec.tuning.calibration import Calibration, calibrate
from jaxspec.tuning.compression_objective import measure_hard
from jaxspec.tuning.objective import DraftMeasurement

__all__ = ["HardDrafts", "keep_norms"]


def keep_norms(drafts: HardDrafts, directory: RunDirectory) -> None:
    """Write what values are ranked by: `jaxspec pack` makes the same draft of it. All processes call it."""
    facts = drafts.work.setup.scheme.facts
    if not (facts.packs and facts.prunes):
        return
    norms = on_host(drafts.calibration.prepared)
    if directory.owned:
        write_norms(directory.path, norms)


@dataclasses.dataclass(frozen=True, eq=False)
class HardDrafts:
    """Hard drafts of a run's network.

    Attributes:
        continuation_tokens: that the target generates after each calibration prompt.
        ranked_by: drafts on whose text values are ranked; None: these themselves, on their own.
        padded_windows: count of windows that programs are compiled for; None: as many as there are. Padding does not count.
        on_own_text: measure drafts on the calibration text as it was written, not on the target's own continuation of its
            prompts.
        known: rows of the text, where another draft's text has them; None: the target is still to write them.
    """

    work: RunContext
    continuation_tokens: int
    on_own_text: bool = False
    ranked_by: HardDrafts | None = None
    padded_windows: int | None = None
    known: np.ndarray | None = None

    @cached_property
    def text(self) -> np.ndarray:
        """Calibration prompts with what the target generates after them; "text token". A stage."""
        config, setup = self.work.config, self.work.setup
        if self.known is not None:
            return self.known

        def compute() -> Arrays:
            if self.on_own_text:
                return {"tokens": setup.calibration_prompts}
            with self.work.bar("continuing the calibration prompts", len(setup.calibration_prompts)) as bar:
                decoded = continue_texts(
                    setup.params,
                    setup.config,
                    Prompts(
                        setup.calibration_prompts[:, : config.prompt_tokens],
                        num_tokens=self.continuation_tokens,
                        decoding=setup.decoding,
                        seed=config.seed,
                    ),
                    advance=bar.advance,
                )
            return {"tokens": decoded["tokens"][:, : config.prompt_tokens + self.continuation_tokens]}

        return self.work.stages.run("calibration_text", compute)["tokens"]

    @property
    def none(self) -> ReadyDraft:
        """Stands in where nothing is drafted: of the form of all drafts, so that decoding shares their compilation."""
        setup = self.work.setup
        knobs, params = uniform_knobs(setup.scheme, setup.config), setup.params
        if is_streamed(setup.stored):
            return self.ready(knobs)
        if setup.scheme.facts.head:
            # Drafts have a head of their own, also of a tied target.
            params = params | columns_first({HEAD: head_of(params), "layers": params["layers"]})
        return self._copy(params, knobs)

    def ready(self, knobs: Knobs) -> ReadyDraft:
        """The hard draft, ready to run."""
        return self._copy(self.params(knobs), knobs)

    def _copy(self, compressed: Params, knobs: Knobs) -> ReadyDraft:
        return compressed_copy(self.work.setup.config, compressed, knobs, sharing=self.work.config.batch)

    @cached_property
    def calibration(self) -> Calibration:
        """Calibration text and everything ranked on it, which takes seconds and is no stage."""
        setup, first = self.work.setup, self.work.config.prompt_tokens - 1
        options = {"scheme": setup.scheme, "first": first, "sharing": self.work.config.batch}
        self.work.reporter.doing("ranking weights on calibration text")
        filled = np.arange(self.padded_windows or len(self.text)).clip(max=len(self.text) - 1)
        calibration = calibrate(setup.stored, setup.config, jnp.asarray(self.text[filled]), **options)
        return (
            calibration
            if self.ranked_by is None
            else dataclasses.replace(calibration, prepared=self.ranked_by.calibration.prepared)
        )

    def on_windows(self, windows: np.ndarray, folder: str, *, padded_windows: int | None = None) -> HardDrafts:
        """The same drafts, with values ranked as here, measured on other text.

        Args:
            windows: "text token", as calibration prompts are.
            folder: of the stages.
            padded_windows: see above; as many windows as here share the programs made here.
        """
        setup = dataclasses.replace(self.work.setup, calibration_prompts=windows)
        work = dataclasses.replace(self.work, setup=setup, stages=self.work.stages.within(folder))
        return dataclasses.replace(self, work=work, ranked_by=self, padded_windows=padded_windows)

    def on_own_windows(self, numbers: np.ndarray, folder: str) -> HardDrafts:
        """The same on some of the windows here. Args: numbers: of windows; folder: of the stages."""
        windows = self.work.setup.calibration_prompts[numbers]
        here = self.on_windows(windows, folder, padded_windows=len(self.text))
        return dataclasses.replace(here, known=self.text[numbers])

    def measure(self, knobs: Knobs, windows: int | None = None) -> DraftMeasurement:
        """Measurement of the hard draft on calibration text. Args: windows: so many of the first; None: all."""
        decoding = self.work.setup.decoding
        self.work.reporter.doing("measuring the hard draft on calibration text")
        return measure_hard(self.calibration, knobs, decoding, windows=windows or len(self.text))

    def measured(self, knobs: Knobs) -> DraftMeasurement:
        """The same, measured once for the same values of the knobs."""
        values = sorted(knobs.values.items())
        key = tuple(np.asarray(part).tobytes() for _, value in values for part in jax.tree.leaves(value))
        if key not in self._measured:
            self._measured[key] = jax.device_get(self.measure(knobs))
        return self._measured[key]

    @cached_property
    def _measured(self) -> dict[tuple[bytes, ...], DraftMeasurement]:
        return {}

    def params(self, knobs: Knobs) -> Params:
        """Parameters of the hard draft, to decode with."""
        setup = self.work.setup
        self.work.reporter.doing("making the hard draft")
        return as_computed(hard_draft(setup.stored, self.calibration.prepared, knobs, setup.config))
