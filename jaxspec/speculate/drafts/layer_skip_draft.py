"""The target without some of its blocks as a draft: which ones is searched on calibration text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from hwmodels.network.architecture import Architecture
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.models.config import DecoderConfig
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.skipped_blocks import BLOCKS, without_blocks
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.layer_skip_search import CalibrationText, search_blocks
from jaxspec.speculate.drafts.quantized_draft import PlainCopy

__all__ = ["LayerSkipDraft", "layer_skip_draft", "search_layer_skip"]


@dataclasses.dataclass(frozen=True)
class LayerSkipDraft(PlainCopy):
    """A draft of some of the target's attention blocks and feed-forward networks, which reads the target's keys and values.

    Attributes:
        attention_share, feed_forward_share: of the layers' blocks that it runs, for the cost.
    Source: Draft & Verify, Zhang et al. 2024, arXiv:2309.08168 (which searches by Bayesian optimisation).
    """

    attention_share: float = dataclasses.field(default=1.0, compare=False)
    feed_forward_share: float = dataclasses.field(default=1.0, compare=False)
    name: str = dataclasses.field(default="layer-skip", compare=False)

    def cost(self, target: DecoderConfig, priced: Architecture, called: str) -> DraftCost:
        """See `Draft.cost`."""
        del target, priced
        return DraftCost(
            attention_share=self.attention_share,
            feed_forward_share=self.feed_forward_share,
            statement=(
                f"{called} with {self.attention_share:.0%} of its attention blocks and {self.feed_forward_share:.0%} of its "
                "feed-forward networks"
            ),
        )


def search_layer_skip(name: str, target: LoadedModel, text: CalibrationText) -> dict[str, np.ndarray]:
    """The blocks that are worth running, and how many candidates were measured: see `search_blocks`."""
    del name
    search = search_blocks(as_computed(as_stored(target.params)), target.config, text)
    return {"run": search.run, "speed": np.asarray(search.speed), "evaluations": np.asarray(search.evaluations)}


def layer_skip_draft(name: str, target: LoadedModel, blocks: Mapping[str, np.ndarray]) -> ReadyDraft:
    """The draft without the blocks that a search leaves out ("run": 0 or 1, "2 layer")."""
    run = np.asarray(blocks["run"], np.float32)
    shares = dict(zip((f"{block}_share" for block in BLOCKS), run.mean(axis=1).tolist(), strict=True))
    network = as_computed(without_blocks(as_stored(target.params), target.config, jnp.asarray(run)))
    return ReadyDraft(LayerSkipDraft(target.config, name=name, **shares), network)
