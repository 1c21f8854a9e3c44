"""All layers of a decoder, one after the other, in loops whose bodies are compiled once.

Equal layers are turns of one loop. Where a network repeats several kinds (three layers with linear attention, one with
attention to a cache, and so on), these loops are the body of another one, whose turns are the repetitions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxspec.models.apart import entries_between, is_apart, over_layers
from jaxspec.models.attention import KVSource
from jaxspec.models.blocks import StepInput
from jaxspec.models.blocks.interface import CachedShape
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder_layer import decoder_layer
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.layer_runs import LayerLoop, LayerRun
from jaxspec.models.matrix import Made, Matrix, OfLayer, stack_of
from jaxspec.models.mixed_cache import own_part, whole_slot
from jaxspec.models.norms import NORMS
from jaxspec.models.router import RouterChoices
from jaxspec.models.sizes import DecoderSizes
from jaxspec.models.streamed import fetched

__all__ = [
    "BLOCKS",
    "FromLayers",
    "LayerNumbers",
    "LayerView",
    "block_parameters",
    "layer_numbers",
    "of_layer",
    "through_layers",
    "without_blocks",
]

# A network some of whose blocks add nothing to the residual stream, as if they were not there.

#: The two blocks of a layer, in their order, and the norm behind each.
BLOCKS = ("attention", "feed_forward")
_POST_NORMS = ("attention_post_norm", "mlp_post_norm")


def without_blocks(params: dict[str, Any], config: DecoderConfig, run: Float[Array, "2 layer"]) -> dict[str, Any]:
    """Parameters of the network in which a block writes `run` times what it would to the residual stream.

    What writes there is scaled: matrices, their biases, and norms behind them. 0 is as good as skipping the block, but takes
    its time here; keys and values of a skipped attention block are computed and seen by nobody.

    Args:
        run: 0 or 1 for attention (row 0) and feed-forward network (row 1) of each layer; may be traced.
    """
    scaled: dict[str, Any] = {}
    for block in range(len(BLOCKS)):
        for name in _writing(config, block):
            scale = run[block, jnp.asarray(list(config.layer_parameters[name].layers()))]
            scaled[name] = Made.of(stack_of(params["layers"][name]), _scaled, scale)
    return params | {"layers": params["layers"] | scaled}


def block_parameters(config: DecoderConfig, block: int) -> list[str]:
    """Matrices of all layers' blocks of one kind, in the order of `BLOCKS`."""
    return list(
        dict.fromkeys(
            name for layer in range(config.num_layers) for name in config.blocks(layer)[block].matrices(config)
        )
    )


def _writing(config: DecoderConfig, block: int) -> list[str]:
    """Parameters of a block whose values go to the residual stream, or are the last that change what goes there."""
    kinds = {config.blocks(layer)[block] for layer in range(config.num_layers)}
    matrices = [name for kind in kinds for name in kind.residual_matrices]
    behind = [*(f"{name}_bias" for name in matrices), *NORMS[config.norm].vectors(_POST_NORMS[block])]
    return [name for name in dict.fromkeys([*matrices, *behind]) if name in config.layer_parameters]


def _scaled(values: Array, scale: Float[Array, ""]) -> Array:
    return values * scale.astype(values.dtype)


# Numbers in which layers of one kind differ, as data: all of them run one program, whatever their windows and rotations.

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


class LayerView(NamedTuple):
    """How a step reads layers: a function of one layer inside the loop over them, so that what it makes exists once at a time.

    Attributes:
        read: (stored weights, caches of all sources, inputs) of one layer -> the weights and caches to compute with, and a
            function that gives facts, called once the layer has run.
        inputs: of `read`; leaves lead with a layer axis.
        policy: of `jax.checkpoint`: what the backward pass keeps of a layer beside its input. None: everything.
    """

    read: Callable[
        [dict[str, Array], Sequence[Any], Any], tuple[Mapping[str, Array], Sequence[KVCache], Callable[[], Any]]
    ]
    inputs: Any = ()
    policy: Callable[..., bool] | None = None


class FromLayers(NamedTuple):
    """What layers put out beside the residual stream; leaves lead with a layer axis, over those that have it.

    Attributes:
        cache: what they wrote. inputs: what was kept of the inputs of their matrices, by input group.
        facts: of a view. choices: of routers, "layer batch token chosen"; None where no layer has one.
        hidden: of all layers together, the inputs of those in `hidden_of`, side by side; None where none are asked for.
    """

    cache: KVCache
    inputs: dict[str, Array]
    facts: Any
    choices: RouterChoices | None
    hidden: Float[Array, "batch token features"] | None = None


class _Shared(NamedTuple):
    """What all layers of a step have in common."""

    config: DecoderConfig
    step: StepInput
    masks: list[Bool[Array, "batch token slot"]]
    keep_activations: Callable[[Array], Array] | None
    view: LayerView | None
    hidden_of: tuple[int, ...] | None


class _Stream(NamedTuple):
    """What goes from layer to layer: the residual stream, and the inputs of some layers; None where none is kept."""

    x: Float[Array, "batch token hidden"]
    kept: Float[Array, "kept batch token hidden"] | None


class _Stacked(NamedTuple):
    """Arrays and stacks that lead with an entry for each layer that has one.

    Attributes:
        tree: of them. before: how many layers before one have an entry.
    """

    tree: Any
    before: Callable[[int], int]

    def between(self, start: int, stop: int) -> int:
        """Entries of the layers from `start` to `stop`, the latter not included."""
        return self.before(stop) - self.before(start)


#: What layers read beside their parameters.
_CACHES, _OF_VIEW, _POOLS, _NUMBERS = ".caches", ".view", ".pools", ".numbers"


def through_layers(
    x: Float[Array, "batch token hidden"],
    layers: Mapping[str, Array | Matrix],
    config: DecoderConfig,
    step: StepInput,
    *,
    keep_activations: Callable[[Array], Array] | None = None,
    view: LayerView | None = None,
    hidden_of: tuple[int, ...] | None = None,
) -> tuple[Float[Array, "batch token hidden"], FromLayers]:
    """What comes out of the last layer, and what all of them tell. Layers that are kept apart (`jaxspec.models.apart`) run one
    after the other, without a loop.

    Args:
        layers: their parameters, stacked. Others: as of `forward`.
    """
    itself: Callable[[int], int] = lambda layer: layer
    sources, pools = step.sources, (step.allowed_experts, step.more_experts)
    step = step._replace(sources=(), allowed_experts=None, more_experts=None)  # each layer has its own
    parameters = config.layer_parameters
    stacked = {name: _Stacked(stack_of(layers[name]), parameter.before) for name, parameter in parameters.items()}
    stacked[_CACHES] = _Stacked([source.cache for source in sources], itself)
    if view is not None:
        stacked[_OF_VIEW] = _Stacked(view.inputs, itself)
    if config.router is not None:
        stacked[_POOLS] = _Stacked(pools, config.router.before)
    # What only decodes: training has nothing cached, and views are what gradients come through.
    in_place = bool(sources) and view is None and not step.frugal
    shared = _Shared(config, step, [source.mask for source in sources], keep_activations, view, hidden_of)
    apart = any(map(is_apart, jax.tree.leaves([each.tree for each in stacked.values()], is_leaf=is_apart)))
    found = []
    kept = None if hidden_of is None else jnp.stack([jnp.where(layer == 0, x, 0) for layer in hidden_of])
    stream = _Stream(x, kept)
    for loop in (LayerLoop(config.runs, 1),) if apart else config.loops:
        stream, told = _loop(stream, loop, stacked, shared, in_place=in_place)
        found.append(told)
    hidden = None if stream.kept is None else jnp.concatenate(list(stream.kept), axis=-1)
    return stream.x, _joined(found)._replace(hidden=hidden)


def _loop(
    stream: _Stream, loop: LayerLoop, stacked: Mapping[str, _Stacked], shared: _Shared, *, in_place: bool
) -> tuple[_Stream, FromLayers]:
    """A number of turns, each through the same runs."""
    start, stop = loop.start, loop.start + loop.layers
    last = start + loop.times * loop.layers

    def turn(stream: _Stream, given: tuple[Any, dict[str, Any]]) -> tuple[_Stream, FromLayers]:
        """One turn, by its number and by what is given of its layers alone; all else is taken from where it lies."""
        number, own = given
        found = []
        for run in loop.runs:
            layers = run.stop - run.start
            first = {
                name: each.before(run.start) + number * each.between(start, stop)
                for name, each in stacked.items()
                if each.between(run.start, run.start + 1)
            }
            entries = {
                name: entries_between(own[name], stacked[name].between(start, run.start), layers)
                if name in own
                else entries_between(stacked[name].tree, place, layers, in_place=in_place)
                for name, place in first.items()
            }
            numbers = entries_between(own[_NUMBERS], run.start - start, layers)
            stream, told = _run(stream, run, {**entries, _NUMBERS: numbers}, first, stacked, shared)
            found.append(told)
        return stream, _joined(found)

    numbers = layer_numbers(shared.config, start, last, shared.hidden_of)
    if loop.times == 1:
        return turn(stream, (0, {_NUMBERS: numbers}))

    by_turn = lambda tree: jax.tree.map(
        lambda leaf: leaf.reshape(loop.times, len(leaf) // loop.times, *leaf.shape[1:]), tree
    )
    own = {}
    for name, each in stacked.items():
        if not in_place and each.between(start, stop):
            own[name] = by_turn(entries_between(each.tree, each.before(start), each.between(start, last)))
    own[_NUMBERS] = by_turn(numbers)
    stream, found = jax.lax.scan(turn, stream, (jnp.arange(loop.times), own))
    in_order = lambda leaf: leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])
    return stream, jax.tree.map(in_order, found)


def _run(
    stream: _Stream,
    run: LayerRun,
    entries: Mapping[str, Any],
    first: Mapping[str, Any],
    stacked: Mapping[str, _Stacked],
    shared: _Shared,
) -> tuple[_Stream, FromLayers]:
    """Consecutive layers of the same kinds of block, as one loop whose body is compiled once, whatever its length.

    Args:
        entries: of these layers. first: places of the first of them in what is stacked.
    """
    config, step, masks, keep_activations, view, _ = shared
    kinds = (run.attention, run.feed_forward)
    stored = {name: stack for name, stack in entries.items() if name in config.layer_parameters}
    position = step.positions if config.needs_positions else None
    mixed, shape = config.mixed_layers, run.attention.cached_shape(config)

    # Of experts, a layer reads those that it needs; of large matrices in 16 bits, one piece after the other.
    is_whole = lambda name, stack: (
        len(config.layer_parameters[name].shape) > 2 or (view is None and stack.in_pieces(step.positions.size))
    )
    whole = {name: stack for name in stored if is_whole(name, stack := stacked[name].tree)}

    def layer(stream, inputs):
        stored, caches, of_view, numbers, place, (allowed, more) = inputs
        caches, of_view = fetched((caches, of_view))
        weights: Mapping[str, Any] = {
            **{
                name: (leaf.in_loop() if view is None else leaf.values())
                for name, leaf in stored.items()
                if name not in whole
            },
            **{name: OfLayer(stack, first[name] + place, stored[name]) for name, stack in whole.items()},
        }
        facts = lambda: None
        if view is not None:
            weights, caches, facts = view.read(weights, caches, of_view)
        if mixed is not None:
            caches = [_own_part(cache, shape) for cache in caches]
        own = of_layer(step._replace(allowed_experts=allowed, more_experts=more), numbers, caches, masks)
        result = decoder_layer(stream.x, weights, config, kinds, own)
        kept = jax.tree.map(keep_activations, result.inputs) if keep_activations else {}
        written = result.written if mixed is None else whole_slot(*result.written, config.cached_shape)
        at, keep = numbers.kept, stream.kept
        keep = keep if at is None or keep is None else keep.at[at].set(result.output, mode="drop")
        return _Stream(result.output, keep), FromLayers(
            KVCache(*written, position, mixed), kept, facts(), result.choices
        )

    policy = view.policy if view is not None else None
    # Nothing merges the two passes over a layer in a loop, so the barriers that keep them apart are not needed.
    body = jax.checkpoint(layer, prevent_cse=False, policy=policy) if step.frugal or policy is not None else layer
    num_layers = run.stop - run.start
    others = (entries[_CACHES], entries.get(_OF_VIEW, ()), entries[_NUMBERS], jnp.arange(num_layers))
    return over_layers(body, stream, (stored, *others, entries.get(_POOLS, (None, None))), num_layers)


def _joined(parts: Sequence[FromLayers]) -> FromLayers:
    """Of some layers and those behind them."""
    join = lambda parts: parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
    inputs: dict[str, list[Array]] = {}
    for part in parts:
        for name, value in part.inputs.items():
            inputs.setdefault(name, []).append(value)
    choices = [part.choices for part in parts if part.choices is not None]
    return FromLayers(
        cache=join([part.cache for part in parts]),
        inputs={name: join(values) for name, values in inputs.items()},
        facts=join([part.facts for part in parts]),
        choices=join(choices) if choices else None,
    )


def _own_part(cache: KVCache, shape: CachedShape) -> KVCache:
    key, value = own_part(cache.key, cache.value, shape)
    return dataclasses.replace(cache, key=key, value=value)
