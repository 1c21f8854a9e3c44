"""Stage: held-out prompts decoded with a chain of drafted tokens and without, and their cycles predicted."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from jaxspec.compress.knob_files import knobs_to_json
from jaxspec.compress.knobs import Knobs
from jaxspec.files import to_json
from jaxspec.models.config import DecoderConfig
from jaxspec.runs.stages import Arrays
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.predicted_cycles import predict_cycles
from jaxspec.speculate.proof import continue_texts, decode_chains
from jaxspec.speculate.sampling import Decoding
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.work import way_of

__all__ = ["ChainDecoding"]

#: Counts up with the fields that a stage stores, so that nothing reads what an earlier version left.
_FORM = 4


@dataclasses.dataclass(frozen=True, eq=False)
class ChainDecoding:
    """Decoding of a run's held-out prompts with hard drafts.

    Attributes:
        longest: draft length that all decoding, autoregressive too, has room for in each step: wider steps take longer.
    """

    drafts: HardDrafts
    longest: int = MAX_DRAFT_LENGTH

    def name_of(self, drafts: Mapping[str, Knobs]) -> str:
        """Name of a stage about several drafts, by their knobs."""
        network = self.drafts.work.setup.config
        every = [f"{name} {_digest(knobs, network)}" for name, knobs in drafts.items()]
        return hashlib.sha256("\n".join(every).encode()).hexdigest()[:12]

    def autoregressive(self, decoding: Decoding) -> Arrays:
        """Held-out prompts without a draft, long enough for predictions at every start."""
        work, drafts = self.drafts.work, self.drafts
        setup = work.setup

        def compute() -> Arrays:
            with work.bar("decoding without a draft", len(setup.prompts)) as bar:
                options: dict[str, Any] = {
                    "num_tokens": drafts.continuation_tokens,
                    "decoding": decoding,
                    "seed": work.config.seed,
                    "lengths": setup.prompt_lengths,
                    "stop": setup.stop,
                    "advance": bar.advance,
                }
                if not decoding.greedy:  # no output is compared with it, token by token
                    return continue_texts(setup.params, setup.config, setup.prompts, **options)
                options["longest"] = self.longest
                return decode_chains(setup.params, setup.config, drafts.none, setup.prompts, 0, **options)

        width = "" if self.longest == MAX_DRAFT_LENGTH or not decoding.greedy else f"-{self.longest + 1}"
        return work.stages.run(f"decoded/{way_of(decoding)}-autoregressive{width}", compute)

    def speculative(self, knobs: Knobs, decoding: Decoding, what: str) -> Arrays:
        """Held-out prompts with a hard draft. Stages are named by the knobs: what two devices share is decoded once."""
        work, drafts = self.drafts.work, self.drafts
        setup = work.setup

        def compute() -> Arrays:
            with work.bar(f"decoding with the {what} draft", len(setup.prompts)) as bar:
                return decode_chains(
                    setup.params,
                    setup.config,
                    drafts.ready(knobs),
                    setup.prompts,
                    knobs.draft_length,
                    num_tokens=work.config.output_tokens,
                    longest=self.longest,
                    room=drafts.continuation_tokens,  # shares the compilation of plain decoding
                    decoding=decoding,
                    seed=work.config.seed,
                    lengths=setup.prompt_lengths,
                    stop=setup.stop,
                    advance=bar.advance,
                )

        return work.stages.run(f"decoded/{way_of(decoding)}-{_digest(knobs, setup.config)}", compute)

    def predicted(self, knobs: Knobs, what: str) -> Arrays:
        """Cycles of the held-out prompts, expected without decoding them."""
        work, drafts = self.drafts.work, self.drafts
        setup, config = work.setup, work.config

        def compute() -> Arrays:
            places = setup.prompts.shape[1]
            length = places + drafts.continuation_tokens
            texts = self.autoregressive(setup.decoding)["tokens"][:, :length]
            with work.bar(f"predicting tokens per cycle, {what}", len(texts)) as bar:
                return predict_cycles(
                    setup.params,
                    drafts.params(knobs),
                    setup.config,
                    texts,
                    prompt_tokens=places,
                    num_tokens=config.output_tokens,
                    knobs=knobs,
                    draft_length=knobs.draft_length,
                    decoding=setup.decoding,
                    lengths=setup.prompt_lengths,
                    stop=setup.stop,
                    sharing=config.batch,
                    seed=config.seed,
                    advance=bar.advance,
                )

        return work.stages.run(f"predicted/{way_of(setup.decoding)}-{_digest(knobs, setup.config)}", compute)


def _digest(knobs: Knobs, network: DecoderConfig) -> str:
    """Name of a stage by its knobs and the form in which it is stored."""
    named = [_FORM, knobs_to_json(knobs, network.matrix_kinds)]
    return hashlib.sha256(to_json(named).encode()).hexdigest()[:12]
