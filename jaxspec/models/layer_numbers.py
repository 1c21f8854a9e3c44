"""Numbers in which layers of one kind differ, as data: all of them run one program, whatever their windows and rotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxspec.models.attention import KVSource
from jaxspec.models.blocks import StepInput
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.sizes import DecoderSizes

__all__ = ["LayerNumbers", "layer_numbers", "of_layer"]

#: Longer than any text.
_NO_WINDOW = 2**30


class LayerNumbers(NamedTuple):
    """Numbers of the layers, " layer", or of one of them.

    Attributes:
        window: tokens that the layer sees; None where no layer has a window.
        rope: place of its rotation among `DecoderSizes.ropes`; None where there is one for all.
        kept: place of what it puts out among the hidden states that are kept; beyond them where it is not; None where none is.
    """

    window: np.ndarray | Int[Array, "*layer"] | None
    rope: np.ndarray | Int[Array, "*layer"] | None
    kept: np.ndarray | Int[Array, "*layer"] | None = None


def layer_numbers(sizes: DecoderSizes, start: int, stop: int, hidden_of: tuple[int, ...] | None = None) -> LayerNumbers:
    """The numbers of the layers from `start` to `stop`, the latter not included.

    Args:
        hidden_of: layers whose inputs are kept, which the layers before them put out.
    """
    layers = range(start, stop)
    window = [sizes.windows[layer % len(sizes.windows)] or _NO_WINDOW for layer in layers]
    rope = [sizes.ropes.index(sizes.rope(layer)) for layer in layers]
    return LayerNumbers(
        window=np.array(window, np.int32) if sizes.windowed else None,
        rope=np.array(rope, np.int32) if len(sizes.ropes) > 1 else None,
        kept=None
        if hidden_of is None
        else np.array([(*hidden_of, layer + 1).index(layer + 1) for layer in layers], np.int32),
    )


def of_layer(
    step: StepInput,
    numbers: LayerNumbers,
    caches: Sequence[KVCache],
    masks: Sequence[Bool[Array, "batch token slot"]],
) -> StepInput:
    """What one layer reads: its caches, behind masks that its window narrows.

    A window is a rule about positions, not about slots: a tree's nodes lie in other slots than their positions say, and so do
    texts of a batch that begin at different slots.

    Args:
        numbers: of this layer. caches: of this layer, without the layer axis. masks: one for each cache.
    """
    window = numbers.window
    if window is not None:
        near = lambda position: step.positions[:, :, None] - position[:, None, :] < window
        masks = [mask & near(_positions(cache)) for cache, mask in zip(caches, masks, strict=True)]
        step = step._replace(mask=step.mask & near(step.positions))
    sources = [KVSource(cache.key, cache.value, mask) for cache, mask in zip(caches, masks, strict=True)]
    source_positions = tuple(cache.position for cache in caches)
    return step._replace(sources=sources, source_positions=source_positions, rope=numbers.rope)


def _positions(cache: KVCache) -> Int[Array, "#batch slot"]:
    if cache.position is None:
        raise ValueError("the cache has no positions, which windows need; make it with `empty_cache` of this network")
    return jnp.asarray(cache.position)
