"""Cycles of the decoding engine with a draft that does nothing, timed: what they take beyond a step is the engine's."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels import Architecture, DraftCost
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.speculate.drafts.interface import Committed, Level, Root
from jaxspec.speculate.engine import decode
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.calibrate.programs import Timed
from jaxspec.trees.public_trees import chain_tree

__all__ = ["IdleDraft", "cycle_times"]

#: Cycles between the two lengths of decoding whose difference is timed.
_SHORT, _LONG = 4, 28


@dataclasses.dataclass(frozen=True)
class IdleDraft:
    """A draft that proposes the same tokens whatever happens, at no cost: what remains of a cycle is the engine's."""

    vocab_size: int
    name: str = dataclasses.field(default="idle", compare=False)

    def num_parameters(self, params: Any) -> int:
        """None."""
        return 0

    def cost(self, target: Any, priced: Architecture, called: str) -> DraftCost:
        """Nothing."""
        return DraftCost(passes=0.0, statement="nothing")

    def empty(self, params: Any, batch: int, slots: int, numbers: Any) -> tuple[()]:
        """No memory."""
        return ()

    def commit(self, params: Any, memory: tuple[()], committed: Committed) -> tuple[()]:
        """Nothing to remember."""
        return memory

    def open(self, params: Any, memory: tuple[()], root: Root) -> tuple[jax.Array, tuple[()]]:
        """Logits of nothing, "batch vocab"."""
        return jnp.zeros((root.token.shape[0], self.vocab_size)), memory

    def extend(self, params: Any, memory: tuple[()], root: Root, level: Level) -> tuple[jax.Array, tuple[()]]:
        """Logits of nothing, "batch token vocab"."""
        return jnp.zeros((*level.tokens.shape, self.vocab_size)), memory


def _cycle_program(params: Params, config: DecoderConfig, batch: int, width: int, context: int) -> tuple[Timed, Any]:
    """Decoding to a number of tokens, as turns; and how many cycles a number of tokens takes."""
    prompts = jnp.asarray(np.random.default_rng(0).integers(32, 127, (batch, context - _LONG)), jnp.int32)
    draft = IdleDraft(config.vocab_size) if width > 1 else None

    def run(tokens: int) -> Any:
        return decode(
            params,
            (),
            prompts,
            jnp.arange(batch),
            chain_tree(width - 1, width),
            jax.random.key(0),
            GREEDY,
            draft=draft,
            config=config,
            num_tokens=tokens,
            room=_LONG,
        )

    return Timed(run), lambda tokens: int(np.max(np.asarray(run(tokens).cycles)))


def cycle_times(
    params: Params, config: DecoderConfig, batch: int, width: int, context: int, repeats: int
) -> list[float]:
    """Seconds of a cycle, a number for each repeat: what more cycles take longer, so that the prompt does not count.

    Args:
        width: tokens of a verification; 1: without a draft.
        context: cached tokens of each sequence at the end.
    """
    program, cycles = _cycle_program(params, config, batch, width, context)
    more = cycles(_LONG) - cycles(_SHORT)
    found = []
    for _ in range(repeats):
        seconds = []
        for tokens in (_SHORT, _LONG):
            began = time.perf_counter()
            jax.block_until_ready(program.run(tokens))
            seconds.append(time.perf_counter() - began)
        found.append((seconds[1] - seconds[0]) / more)
    return found
