"""Drafts from targets: a whole network of hard matrices for decoding, or a view that makes each matrix where it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hwmodels import Footprint
from jaxspec.compress.footprint import measured_footprint
from jaxspec.compress.knobs import Knobs
from jaxspec.compress.kv import PreparedKV
from jaxspec.compress.schemes.scheme import CompressedMatrix, OwnKnobs, Scheme
from jaxspec.formats.patterns import BitsRead
from jaxspec.models.config import INPUT_OF, DecoderConfig, kinds_of
from jaxspec.models.decoder import Params
from jaxspec.models.layer_loops import LayerView
from jaxspec.models.matrix import Made, Matrix, Stored, stack_of
from jaxspec.models.special_tokens import head_of
from jaxspec.models.streamed import is_streamed

__all__ = [
    "HEAD",
    "HEAD_KNOBS",
    "draft_head",
    "draft_view",
    "hard_draft",
    "hard_head",
    "knobs_of_matrix",
    "prepare",
    "prepare_head",
    "rows_of",
    "sum_of_squares",
    "target_network",
]

# The LM head of a draft, where a scheme compresses it like the matrices of the layers.

#: Name of the head among parameters, footprints and what a scheme prepared.
HEAD = "lm_head"

#: Knobs of the head, by the names that knobs of a matrix have.
HEAD_KNOBS = {"weight_prune": "head_prune", "weight_cut_bits": "head_cut_bits"}


def prepare_head(scheme: Scheme, params: Params, norm: Float[Array, " column"]) -> Any:
    """What a scheme computes once of the head.

    Args:
        norm: of each channel of what the head multiplies, over calibration tokens.
    """
    return scheme.of_kind(HEAD).matrix.prepare(stack_of(head_of(params)).values(), norm)


def _own(knobs: Knobs) -> OwnKnobs:
    return {name: knobs.values[of_head] for name, of_head in HEAD_KNOBS.items()}


def draft_head(
    params: Params, prepared: Any, knobs: Knobs, temperature: Float[Array, ""] | float | None
) -> CompressedMatrix:
    """The head of a draft.

    Args:
        params: the target's.
        prepared: by `prepare_head`.
        temperature: as for `draft_view`; None: the hard head.
    """
    codec = knobs.scheme.of_kind(HEAD).matrix
    given = stack_of(head_of(params)).values(), prepared, _own(knobs)
    return codec.hard(*given) if temperature is None else codec.soft(*given, temperature)


def hard_head(params: Params, prepared: Any, knobs: Knobs) -> Stored:
    """The bit-exact head of a draft, to decode with."""
    return _hard_head({HEAD: head_of(params)}, prepared, knobs)


@jax.jit
def _hard_head(params: Params, prepared: Any, knobs: Knobs) -> Stored:
    return Stored.of(draft_head(params, prepared, knobs, None).values)


#: What a scheme prepared of each matrix: kind -> leaves that lead with a layer axis, the head's without one.
Prepared = dict[str, Any]


def sum_of_squares(
    inputs: Float[Array, "batch token column"], counted: Float[Array, " batch"] | None = None
) -> Float[Array, " column"]:
    """Of each channel over all tokens: what `forward` keeps of activations, whose root is a channel's norm.

    Args:
        counted: whether a sequence counts, 0 or 1; None: all do.
    """
    squares = jnp.square(inputs)
    return jnp.sum(squares if counted is None else squares * counted[:, None, None], axis=(0, 1))


def target_network(scheme: Scheme, params: Params) -> Params:
    """Parameters of a scheme's target: the network itself, or one whose matrices are made from it where they are used."""
    if scheme.lossless:
        return params
    made = {
        kind: Made.of(stack_of(params["layers"][kind]), _Target(scheme.of_kind(kind)))
        for kind in kinds_of(params["layers"])
    }
    return params | {"layers": params["layers"] | made}


@dataclasses.dataclass(frozen=True)
class _Target:
    """Makes matrices of a scheme's target of the stored ones."""

    scheme: Scheme

    def __call__(self, values: Array, _: Any) -> Array:
        return self.scheme.matrix.target(values)


@dataclasses.dataclass(frozen=True)
class _Hard:
    """Makes a matrix of a hard draft of the target's, what was prepared of it, and its knobs."""

    scheme: Scheme

    def __call__(self, values: Array, given: tuple[Any, OwnKnobs]) -> Array:
        return self.scheme.matrix.hard(values, *given).values


def prepare(scheme: Scheme, params: Params, norms: dict[str, Float[Array, "*layer column"]]) -> Prepared:
    """What a scheme computes once of a target's matrices and its calibration text; leaves lead with a layer axis but for those
    of the head.

    Args:
        norms: of each input channel over calibration tokens, by input group (see `INPUT_OF`), and of the head's input where
            the scheme compresses the head.
    """

    def of_layers(kind: str) -> Any:
        own = scheme.of_kind(kind).matrix
        one = lambda both: own.prepare(rows_of(both[0].values()), both[1])
        return jax.lax.map(one, (stack_of(params["layers"][kind]), norms[INPUT_OF[kind]]))

    head = {HEAD: prepare_head(scheme, params, norms[HEAD])} if scheme.facts.head else {}
    return {kind: of_layers(kind) for kind in kinds_of(params["layers"])} | head


def hard_draft(params: Params, prepared: Prepared, knobs: Knobs, config: DecoderConfig | None = None) -> Params:
    """The bit-exact draft, by the knobs' own scheme: the target's parameters with the matrices of the layers replaced, and with
    a head of its own where the scheme compresses the head.

    Of a streamed target, each is made from the target's anew where a program uses it.

    Args:
        config: static; needed of a network whose layers differ in the matrices that they have.
    Raises:
        ValueError: it is needed and missing.
    """
    stored = {kind: stack_of(params["layers"][kind]) for kind in kinds_of(prepared)}
    head = {HEAD: hard_head(params, prepared[HEAD], knobs)} if knobs.scheme.facts.head else {}
    own = {
        kind: _of_layers_with(kind, stored[kind].shape[0], knobs_of_matrix(knobs.values, knobs.scheme, place), config)
        for place, kind in enumerate(kinds_of(prepared))
    }
    if is_streamed(stored):
        way = {kind: _Hard(knobs.scheme.of_kind(kind)) for kind in own}
        made = {kind: Made.of(stored[kind], way[kind], (prepared[kind], own[kind])) for kind in own}
        return params | head | {"layers": params["layers"] | made}
    # Only what is new leaves the program: a program copies whatever it returns.
    matrices = _hard_matrices(stored, prepared, own, scheme=knobs.scheme)
    return params | head | {"layers": params["layers"] | matrices}


@partial(jax.jit, static_argnames="scheme")
def _hard_matrices(
    stored: dict[str, Matrix], prepared: Prepared, own: dict[str, OwnKnobs], *, scheme: Scheme
) -> dict[str, Stored]:
    def one(scheme: Scheme, matrix: Matrix, statistics: Any, knobs: OwnKnobs) -> Stored:
        values = matrix.values()
        return Stored.of(scheme.matrix.hard(rows_of(values), statistics, knobs).values.reshape(values.shape))

    def of_layers(kind: str) -> Stored:
        make = partial(one, scheme.of_kind(kind))
        return jax.lax.map(lambda layer: make(*layer), (stored[kind], prepared[kind], own[kind]))

    return {kind: of_layers(kind) for kind in kinds_of(own)}


def rows_of(matrices: Float[Array, "*b row column"]) -> Float[Array, "rows column"]:
    """Matrices of experts below one another: the rows of a matrix are compressed each by itself."""
    return matrices.reshape(-1, matrices.shape[-1])


def _of_layers_with(kind: str, count: int, own: OwnKnobs, config: DecoderConfig | None) -> OwnKnobs:
    """Knobs of the layers that have a kind of matrix, of which there are `count`."""
    if all(len(value) == count for value in own.values()):
        return own
    if config is None:
        raise ValueError(f"{count} layers have matrix {kind!r}; give the network's config, which says which ones")
    layers = jnp.asarray(list(config.layer_parameters[kind].layers()))
    return jax.tree.map(lambda value: value[layers], own)


def knobs_of_matrix(values: Mapping[str, Array], scheme: Scheme, place: int) -> OwnKnobs:
    """Knobs of one kind of matrix."""
    return {spec.name: values[spec.name][..., place] for spec in scheme.knob_specs if spec.per == "matrix"}


class _MadeWhereUsed(Mapping[str, Array]):
    """Weights of a layer whose matrices are made when they are asked for, so that a program makes each beside its product.

    Made all together, they would all exist until the backward pass has come back to where they were made.
    """

    def __init__(self, stored: Mapping[str, Array], kinds: Sequence[str], make: Callable[[str], CompressedMatrix]):
        self._stored, self._kinds, self._make, self.made = stored, kinds, make, {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._kinds:
            return self._stored[name]
        if name not in self.made:
            self.made[name] = self._make(name)
        return self.made[name].values

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def draft_view(
    prepared: Prepared,
    kv: PreparedKV,
    knobs: Knobs,
    temperature: Float[Array, ""] | float | None,
    *,
    config: DecoderConfig,
    windows: Int[Array, " batch"],
    policy: Any = None,
    counted: Float[Array, " batch"] | None = None,
) -> LayerView:
    """A draft that exists one matrix at a time: for `forward` over the target's parameters and one source, `kv`.

    Its facts are the footprint, leaves " layer"; bits of what a layer lacks are 0, keys and values of attention among it.

    Args:
        config: of the network.
        windows: sequences of `kv` that the step runs over.
        temperature: of the differentiable draft, which tends to the hard one as it falls, away from half-way knobs. None: the
            hard draft.
        policy: as for `LayerView`.
        counted: whether the bits of the cache are about a sequence, 0 or 1; None: about all.
    """
    scheme, kinds = knobs.scheme, kinds_of(prepared)

    def read(stored: dict[str, Array], caches: Sequence[Any], inputs: Any):
        (known,), (statistics, values) = caches, inputs

        own = [kind for kind in kinds if kind in stored]

        def make(kind: str) -> CompressedMatrix:
            matrices = stack_of(stored[kind]).values()
            given = rows_of(matrices), statistics[kind], knobs_of_matrix(values, scheme, kinds.index(kind))
            way = scheme.of_kind(kind).matrix
            made = way.hard(*given) if temperature is None else way.soft(*given, temperature)
            return made._replace(values=made.values.reshape(matrices.shape))

        def footprint(cached: BitsRead | None) -> Footprint:
            none = jax.tree.map(jnp.zeros_like, weights.made[own[0]].bits)
            bits = {kind: weights.made[kind].bits if kind in own else none for kind in kinds}
            return measured_footprint(bits, none if cached is None else cached)

        weights, known = _MadeWhereUsed(stored, own, make), known.in_layer(windows)
        if known.kept is not None and "o" not in stored:  # linear attention, which is never compressed
            return weights, [dataclasses.replace(known.kept, position=known.position)], lambda: footprint(None)
        cached = (
            scheme.kv.hard(known.rows, values, counted)
            if temperature is None
            else scheme.kv.soft(known.rows, values, temperature, counted)
        )
        return weights, [known.read(cached)], lambda: footprint(cached.bits)

    def of_all_layers(kind: str) -> Any:
        """What was prepared of the layers that have a matrix, at their places among all."""
        layers = jnp.asarray(list(config.layer_parameters[kind].layers()))
        spread = lambda leaf: jnp.zeros((config.num_layers, *leaf.shape[1:]), leaf.dtype).at[layers].set(leaf)
        return prepared[kind] if len(layers) == config.num_layers else jax.tree.map(spread, prepared[kind])

    return LayerView(read, ({kind: of_all_layers(kind) for kind in kinds}, knobs.of_layers), policy)
