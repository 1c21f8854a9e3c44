"""Shape of a decoder network: shared sizes, and the kinds of block that its layers consist of."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from hwmodels.networks import Family, NetworkSpec, RopeSpec, SharedSizes, read_running
from jaxspec.models.blocks import (
    Attention,
    DenseFeedForward,
    Experts,
    FeedForward,
    GatedDeltaNet,
    GroupedAttention,
    LatentAttention,
    ShortConvolution,
)
from jaxspec.models.blocks.interface import CachedShape
from jaxspec.models.layer_runs import LayerLoop, LayerRun, loops_of, runs_of
from jaxspec.models.mixed_cache import MixedLayers, common_shape
from jaxspec.models.norms import NORMS
from jaxspec.models.rope import SCALINGS, Rope
from jaxspec.models.rounded_inputs import KEY_SCALE, input_scale_of, input_space_of, spread_shapes
from jaxspec.models.sizes import DecoderSizes, shortest
from jaxspec.settings.knobs import MANTISSA_BITS, SharedExponents, StoredDtype

__all__ = [
    "INPUT_OF",
    "MATRIX_KINDS",
    "RECURRENT",
    "DecoderConfig",
    "LayerParameter",
    "config_of",
    "decoder_config",
    "family_of",
    "kinds_of",
]

#: The matrices of a layer that a draft may compress, in the order in which a layer uses them; a network's own are
#: `DecoderConfig.matrix_kinds`.
MATRIX_KINDS = (
    *("q", "q_down", "q_up", "k", "v", "kv_down", "k_up", "v_up", "o"),
    *("in_qkv", "in_z", "out", "gate", "up", "down"),
    *("expert_gate", "expert_up", "expert_down", "shared_gate", "shared_up", "shared_down"),
)

#: Which recorded input feeds each matrix (see `forward(keep_activations=True)`).
INPUT_OF = {
    **{"in_qkv": "linear_in", "in_z": "linear_in", "out": "linear_out"},
    **{"q": "qkv", "k": "qkv", "v": "qkv", "o": "o", "gate": "gate_up", "up": "gate_up", "down": "down"},
    **{"q_down": "qkv", "q_up": "q_latent", "kv_down": "qkv", "k_up": "kv_latent", "v_up": "kv_latent"},
    **{"expert_gate": "expert_gate_up", "expert_up": "expert_gate_up", "expert_down": "expert_down"},
    **{"shared_gate": "shared_gate_up", "shared_up": "shared_gate_up", "shared_down": "shared_down"},
}

#: Kinds of block in the place of attention whose layers `linear` describes: they attend to no cache of keys and values.
RECURRENT = (GatedDeltaNet, ShortConvolution)

#: Norms of what enters the two blocks, and of what leaves them.
PRE_NORMS, POST_NORMS = ("attention_norm", "mlp_norm"), ("attention_post_norm", "mlp_post_norm")


def kinds_of(names: Collection[str]) -> tuple[str, ...]:
    """The matrices that a draft may compress among a layer's parameters, in the order of `MATRIX_KINDS`."""
    return tuple(kind for kind in MATRIX_KINDS if kind in names)


class LayerParameter(NamedTuple):
    """One named parameter of the layers.

    Attributes:
        shape: in one layer.
        num_layers: that have it; their arrays are stacked in the order of the layers.
        pattern: whether a layer has it, by the layer's place in the pattern that the network repeats.
        initial: of a scale or bias; None for a matrix, whose initial values are random.
        residual: a matrix whose output goes to the residual stream.
    """

    shape: tuple[int, ...]
    num_layers: int
    pattern: tuple[bool, ...]
    initial: float | None = None
    residual: bool = False

    def in_layer(self, layer: int) -> bool:
        """Whether a layer has it."""
        return self.pattern[layer % len(self.pattern)]

    def before(self, layer: int) -> int:
        """Layers before this one that have it: its place in the stack."""
        whole, rest = divmod(layer, len(self.pattern))
        return whole * sum(self.pattern) + sum(self.pattern[:rest])

    def layers(self) -> Iterator[int]:
        """Numbers of the layers that have it, in order."""
        total = self.num_layers // sum(self.pattern) * len(self.pattern)
        return (layer for layer in range(total) if self.in_layer(layer))


@dataclasses.dataclass(frozen=True)
class DecoderConfig(DecoderSizes):
    """Static description of a decoder (norms before or after each block, residual connections).

    Attributes:
        attention, feed_forward: kinds of block, layer by layer; a pattern shorter than the network is repeated.
        stored_dtype: the 16 bits in which a target's KV cache is stored: what the network's matrices are stored in.
        in_codes: whether matrices are held in codes of fewer than 16 bits, as a quantized release stores them.
        shared_kv_exponents: blocks that the KV cache is stored in instead; None: it is not.
    Raises:
        ValueError: sizes do not fit together (see `DecoderSizes`), neither norms before nor after the blocks, a pattern does
            not divide the layers, two blocks give one parameter different shapes, or an unknown stored type.
    """

    attention: tuple[Attention, ...] = (GroupedAttention(),)
    feed_forward: tuple[FeedForward, ...] = (DenseFeedForward(),)
    stored_dtype: StoredDtype = "bfloat16"
    in_codes: bool = False
    shared_kv_exponents: SharedExponents | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, pattern in (("attention", self.attention), ("feed_forward", self.feed_forward)):
            if not pattern or self.num_layers % len(pattern):
                raise ValueError(f"{name} has {len(pattern)} entries; they must divide the {self.num_layers} layers")
            object.__setattr__(self, name, shortest(pattern))
        if not self.block_norms:
            raise ValueError("pre_norms and post_norms are both False; a layer has the ones, the others or both")
        _ = self.cached_shape  # shapes are compared there
        if self.stored_dtype not in MANTISSA_BITS:
            raise ValueError(f"stored_dtype is {self.stored_dtype!r}; allowed are {', '.join(MANTISSA_BITS)}")
        _ = self.layer_parameters  # shapes are compared there
        if self.linear is not None and self.mixed_layers is None:
            raise ValueError("linear has sizes, and no layer has linear attention; give None, or such layers")
        if self.experts is not None and self.router is None:
            raise ValueError("experts has sizes, and no layer is a mixture of experts; give None, or such layers")

    def blocks(self, layer: int) -> tuple[Attention, FeedForward]:
        """Kinds of block of one layer."""
        return self.attention[layer % len(self.attention)], self.feed_forward[layer % len(self.feed_forward)]

    @functools.cached_property
    def runs(self) -> tuple[LayerRun, ...]:
        """The layers in order, consecutive equal ones together."""
        return runs_of(self.blocks, self.num_layers)

    @functools.cached_property
    def loops(self) -> tuple[LayerLoop, ...]:
        """The runs in order, with those that are repeated together: the body of each is compiled once."""
        return loops_of(self.runs)

    @functools.cached_property
    def layer_parameters(self) -> dict[str, LayerParameter]:
        """Name -> parameter, matrices first, in the order in which a layer uses them."""
        period = math.lcm(len(self.attention), len(self.feed_forward))
        matrices: dict[str, list[LayerParameter | None]] = {}
        norms = {
            name: LayerParameter((self.hidden_size,), self.num_layers, (True,), initial)
            for norm in self.block_norms
            for name, initial in NORMS[self.norm].vectors(norm).items()
        }
        vectors: dict[str, list[LayerParameter | None]] = {}
        for place in range(period):
            for name, parameter in self._of_blocks(place):
                group = vectors if parameter.initial is not None else matrices
                group.setdefault(name, [None] * period)[place] = parameter
        return {
            **{name: self._merged(name, found) for name, found in matrices.items()},
            **norms,
            **{name: self._merged(name, found) for name, found in vectors.items()},
        }

    @property
    def block_norms(self) -> tuple[str, ...]:
        """Norms of the residual stream that each layer has."""
        pre_norms = PRE_NORMS[:1] if self.parallel else PRE_NORMS
        return (*pre_norms * self.pre_norms, *POST_NORMS * self.post_norms)

    @functools.cached_property
    def router(self) -> LayerParameter | None:
        """The matrix of the routers; None: no layer has one."""
        return self.layer_parameters.get("router")

    @functools.cached_property
    def matrix_kinds(self) -> tuple[str, ...]:
        """The matrices of its layers that a draft may compress, in the order of `MATRIX_KINDS`."""
        return kinds_of(self.layer_parameters)

    @functools.cached_property
    def outside_parameters(self) -> dict[str, tuple[tuple[int, ...], float | None]]:
        """Name -> shape and initial value of the parameters outside the layers; None: random."""
        embedding = (self.vocab_size, self.hidden_size)
        vectors = NORMS[self.norm].vectors("final_norm")
        found: dict[str, tuple[tuple[int, ...], float | None]] = {"embed": (embedding, None)}
        if self.learned_positions is not None:
            found["position_embed"] = ((self.learned_positions.rows, self.hidden_size), None)
        found |= {name: ((self.hidden_size,), initial) for name, initial in vectors.items()}
        return found if self.tie_embeddings else found | {"lm_head": (embedding, None)}

    def _of_blocks(self, layer: int) -> Iterator[tuple[str, LayerParameter]]:
        for block in self.blocks(layer):
            for name, shape in block.matrices(self).items():
                yield name, LayerParameter(shape, 1, (True,), residual=name in block.residual_matrices)
                if name in MATRIX_KINDS:
                    yield from self._beside(name, shape)
            for name, (length, initial) in block.vectors(self).items():
                yield name, LayerParameter(length if isinstance(length, tuple) else (length,), 1, (True,), initial)

    def _beside(self, kind: str, shape: tuple[int, ...]) -> Iterator[tuple[str, LayerParameter]]:
        """Arrays beside a matrix that say how its inputs, or the keys that it makes, are rounded."""
        form, kv = self.rounded_inputs and self.rounded_inputs.of(kind), self.integer_kv
        array = lambda shape: LayerParameter(shape, 1, (True,), initial=1.0)
        if form is not None and form.scaled:
            yield input_scale_of(kind), array((*shape[:-2], shape[-1]))
        if form is not None and form.spread:
            shapes = spread_shapes(shape[-1])
            yield from ((name, array(shapes[field])) for field, name in input_space_of(kind).items())
        if kv is not None and kv.smoothed_keys and kind == "k":
            yield KEY_SCALE, array(shape[:1])

    def _merged(self, name: str, found: list[LayerParameter | None]) -> LayerParameter:
        """One parameter from what each place of the pattern says of it."""
        forms = {parameter for parameter in found if parameter is not None}
        if len(forms) > 1:
            shapes = ", ".join(sorted(str(form.shape) for form in forms))
            raise ValueError(f"parameter {name} has shapes {shapes}; a name has one shape in all layers")
        pattern = tuple(parameter is not None for parameter in found)
        count = self.num_layers // len(pattern) * sum(pattern)
        return forms.pop()._replace(num_layers=count, pattern=pattern)

    @property
    def cached_shape(self) -> CachedShape:
        """What the KV cache holds of a token and layer."""
        return common_shape(kind.cached_shape(self) for kind in self.attention)

    @functools.cached_property
    def mixed_layers(self) -> MixedLayers | None:
        """What the layers of the KV cache hold where some have linear attention; None: all hold keys and values."""
        if not any(isinstance(kind, RECURRENT) for kind in self.attention):
            return None
        own = (kind.cached_shape(self) for kind in self.attention if not isinstance(kind, RECURRENT))
        layers = (isinstance(self.blocks(layer)[0], RECURRENT) for layer in range(self.num_layers))
        return MixedLayers(next(own, None), tuple(layers))

    @property
    def needs_positions(self) -> bool:
        """Whether the KV cache holds the position of each slot: windows are about them, and so are convolutions."""
        return self.windowed or self.mixed_layers is not None

    def matrix_shape(self, kind: str) -> tuple[int, ...]:
        """(output rows, input columns) of one matrix kind in one layer that has it."""
        return self.layer_parameters[kind].shape

    def num_parameters(self) -> int:
        """Parameters of the whole network; a tied head counts once."""
        layers = sum(math.prod(parameter.shape) * parameter.num_layers for parameter in self.layer_parameters.values())
        return layers + sum(math.prod(shape) for shape, _ in self.outside_parameters.values())


# Networks that run, by the rows of the one table of Hugging Face families.

#: Fields that a network's description and its configuration here have in common.
SHARED = tuple(field.name for field in dataclasses.fields(SharedSizes))


def decoder_config(raw: dict[str, Any]) -> DecoderConfig:
    """Our static configuration from a parsed config.json.

    Raises:
        NotImplementedError, ValueError: see `read_running`; sizes that do not fit together.
    """
    return config_of(read_running(raw).spec)


def family_of(raw: dict[str, Any]) -> Family:
    """The family of a parsed config.json, or of the text decoder that it describes; see `read_running`."""
    return read_running(raw).family


def config_of(spec: NetworkSpec) -> DecoderConfig:
    """The configuration of a network that was read with its computation. Raises ValueError."""
    dense, attends = (
        DenseFeedForward(gated=spec.gated_ffn),
        GroupedAttention() if spec.latent is None else LatentAttention(),
    )
    recurrent = ShortConvolution() if spec.linear and spec.linear.convolution_alone else GatedDeltaNet()
    main = _rope(spec.rope)
    return DecoderConfig(
        **{name: getattr(spec, name) for name in SHARED},
        rope_theta=main.theta,
        rope_scaling=main.scaling,
        local_rope=spec.local_rope and _rope(spec.local_rope),
        attention=tuple(recurrent if linear else attends for linear in spec.linear_layers),
        feed_forward=tuple(Experts() if mixed else dense for mixed in spec.expert_layers),
        **(spec.computation or {}),
    )


def _rope(spec: RopeSpec) -> Rope:
    return Rope(spec.theta, None if spec.kind == "default" else SCALINGS[spec.kind](**spec.values))
