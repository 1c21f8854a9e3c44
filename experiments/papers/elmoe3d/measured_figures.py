"""Figures 5b and 17 and hits of small caches, measured on the embedded mixture of experts: the paper's targets are a thousand
times as large.

48 prompts: with a third of them, pools differ by chance.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from matplotlib.figure import Figure

from experiments.intervals import bootstrap
from experiments.reproduce.paper import paper_figure
from hwmodels.networks import ExpertSizes
from jaxspec.compress.expert_pool import PoolSizes
from jaxspec.compress.kv import stored_kv
from jaxspec.compress.schemes.elastic import ELASTIC
from jaxspec.compress.weights import target_network
from jaxspec.errors import InputError
from jaxspec.formats.bit_slices import Reading
from jaxspec.formats.group_quantization import to_float16
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.embedded import load_model
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.stored import as_computed
from jaxspec.report.figure_style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    styled,
    text_colour_on,
)
from jaxspec.speculate.acceptance import TargetText, block_pass
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.hotness import RETENTION, TextPools, hotness_before, hotness_rank, shared_hotness
from jaxspec.speculate.proof import continue_texts
from jaxspec.speculate.sampling import SAMPLING, Decoding
from jaxspec.text import load_text
from jaxspec.tuning.calibration import target_params

__all__ = [
    "CAPACITY_SHARE",
    "DEDICATED",
    "READINGS",
    "SHARING",
    "WIDTHS",
    "Length",
    "Measured",
    "PoolRules",
    "Settings",
    "accepted_tokens",
    "axes_figure",
    "both_axes",
    "cache_hits",
    "draft_bytes",
    "hot_pools",
    "length_of",
    "measured_network",
    "pool_and_bits_figure",
    "pool_rules",
    "pool_sizes_of",
    "pools_figure",
    "random_pools",
    "read_network",
    "readings_figure",
    "rules_figure",
    "weight_readings",
    "widths_figure",
]


#: Name of the quantization to few bits with scales of its own, which shares nothing with the target.
DEDICATED = "dedicated"

#: Ways in the order of the figure.
READINGS = ("augmentation", "rounding", "truncation", DEDICATED)

_GROUP = 32


def read_network(reading: str, bits: int, stored: Params, target: Params, config: DecoderConfig) -> Params:
    """The draft's parameters.

    Args:
        reading: one of `READINGS`. bits: 2 to 6.
        stored: the network in 16 bits, which is what a dedicated quantization starts from; target: its INT8 form, of which the
            others are slices.
    """
    source = (stored if reading == DEDICATED else target)["layers"]
    made = _read({kind: source[kind] for kind in config.matrix_kinds}, jnp.asarray(float(bits)), reading)
    return target | {"layers": target["layers"] | made}


@partial(jax.jit, static_argnames="reading")
def _read(stacks: dict[str, Array], bits: Float[Array, ""], reading: str) -> dict[str, Array]:
    """Of all layers and experts: each row is made alone."""
    if reading == DEDICATED:
        make = partial(_dedicated, bits=bits)
    else:
        codec = dataclasses.replace(cast(Any, ELASTIC.matrix), reading=cast(Reading, reading))
        make = lambda rows: codec.hard(rows, None, {"slice_bits": bits}).values
    return {kind: make(stack.reshape(-1, stack.shape[-1])).reshape(stack.shape) for kind, stack in stacks.items()}


def _dedicated(rows: Float[Array, "row column"], bits: Float[Array, ""]) -> Float[Array, "row column"]:
    """Symmetric integers of so many bits in groups of 32, scale = largest magnitude over the largest integer."""
    columns, most = rows.shape[-1], 2 ** (bits - 1) - 1
    groups = jnp.pad(rows, ((0, 0), (0, -columns % _GROUP))).reshape(len(rows), -1, _GROUP)
    scale = to_float16(jnp.max(jnp.abs(groups), axis=-1, keepdims=True) / most).astype(jnp.float32)
    integers = jnp.clip(jnp.round(groups / jnp.where(scale > 0, scale, 1.0)), -most, most)
    return (integers * scale).reshape(len(rows), -1)[:, :columns]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is measured."""

    prompts: int = 48
    prompt_tokens: int = 48
    output_tokens: int = 64
    draft_length: int = 8  # deepest drafted token
    shifts: int = 2  # passes over a text whose roots lie at other places
    temperature: float = 0.0  # 0: greedy; above, texts are drawn from the target and drafts are judged as samplers
    seed: int = 0

    @property
    def decoding(self) -> Decoding:
        """How tokens are chosen."""
        return dataclasses.replace(SAMPLING, greedy=self.temperature == 0, temperature=self.temperature or 1.0)


class Measured(NamedTuple):
    """A network with its text.

    Attributes:
        stored: in 16 bits. target: in INT8, which wrote the text.
        chosen: experts that its routers choose at each token.
    """

    config: DecoderConfig
    stored: Params
    target: Params
    text: TargetText
    cache: KVCache
    chosen: Int[Array, "batch token layer chosen"]

    @property
    def experts(self) -> ExpertSizes:
        """Sizes of its mixture."""
        assert self.config.experts is not None
        return self.config.experts


class Length(NamedTuple):
    """Drafted tokens accepted after a root, in the mean over evenly spread roots, and its standard error over texts."""

    mean: float
    standard_error: float


def measured_network(loaded: LoadedModel, settings: Settings) -> Measured:
    """The INT8 form of a network, what it makes of held-out prompts, and what its routers choose there.

    Raises:
        InputError: a network without experts.
    """
    config = loaded.config
    if config.experts is None:
        raise InputError("the model has no experts; give a mixture of experts")
    stored = target_params(loaded.params)
    target = as_computed(target_network(ELASTIC, stored))
    text = load_text("stdlib", loaded.tokenizer)
    prompts = text.held_out_windows(settings.prompts, settings.prompt_tokens, settings.seed)
    length = settings.prompt_tokens + settings.output_tokens + 1
    decoded = continue_texts(
        target,
        config,
        Prompts(prompts, num_tokens=settings.output_tokens + 1, decoding=settings.decoding, seed=settings.seed),
    )
    tokens = jnp.asarray(decoded["tokens"][:, :length])
    result = forward_text(target, config, tokens[:, :-1], kv_codec=stored_kv(config), logits_from=length - 1)
    assert result.extras is not None
    text = TargetText(tokens, result.hidden[:, settings.prompt_tokens - 1 :])
    return Measured(config, as_computed(stored), target, text, result.cache, result.extras.original)


def hot_pools(
    network: Measured, *, sharing: int = 1, retention: float = RETENTION
) -> Int[Array, "layer batch query expert"]:
    """Rank of each expert by hotness at each query, of its own text or of so many texts together."""
    hotness = hotness_before(network.chosen, network.experts.num_experts, retention)
    return hotness_rank(shared_hotness(hotness, sharing))[:, :, network.text.first :]


def random_pools(network: Measured, seed: int) -> Int[Array, "layer batch query expert"]:
    """Ranks that have nothing to do with the text, others in each layer and text."""
    layers, batch = network.chosen.shape[2], len(network.chosen)
    queries, experts = network.text.hidden.shape[1], network.experts.num_experts
    order = np.random.default_rng(seed).random((layers, batch, 1, experts)).argsort(axis=-1)
    return jnp.broadcast_to(jnp.asarray(order), (layers, batch, queries, experts))


def length_of(accepted: Float[np.ndarray, " batch"]) -> Length:
    """Acceptance length over texts."""
    return Length(float(accepted.mean()), float(accepted.std(ddof=1) / np.sqrt(len(accepted))))


def accepted_tokens(
    network: Measured, draft: Params, ranks: Int[Array, "layer batch query expert"], size: int, settings: Settings
) -> Float[np.ndarray, " batch"]:
    """Acceptance length in each text.

    Args:
        draft: its parameters.
        ranks: of experts; size: of the pools, all experts with a rank below it.
    """
    per_text = _accepted(
        network.target,
        draft,
        network.text,
        network.cache,
        ranks,
        jnp.full(ranks.shape[0], size),
        config=network.config,
        block=settings.draft_length,
        shifts=settings.shifts,
        decoding=settings.decoding.for_program(),
    )
    return np.asarray(per_text, np.float64)


@partial(jax.jit, static_argnames=("config", "block", "shifts"))
def _accepted(
    target: Params,
    draft: Params,
    text: TargetText,
    cache: KVCache,
    ranks: Array,
    sizes: Array,
    *,
    config: DecoderConfig,
    block: int,
    shifts: int,
    decoding: Decoding,
) -> Float[Array, " batch"]:
    pools = TextPools(ranks, PoolSizes(sizes, None, jnp.zeros(sizes.shape)))

    def one(offset: Array) -> Array:
        passed = block_pass(
            draft, config, text, cache, target=target, offset=offset, block=block, decoding=decoding, pools=pools
        )
        return jnp.mean(jnp.sum(passed.survival, axis=-1), axis=-1)

    return jnp.mean(jax.lax.map(one, jnp.arange(shifts) * block // shifts), axis=0)


#: Bit widths of a draft.
WIDTHS = (2, 3, 4, 5, 6)

#: Width of the paper's draft, where one width is measured.
WIDTH = 4

#: Share of the INT8 network that fits into fast memory, in the paper's smaller setting: 8 GB beside a network of 32.
CAPACITY_SHARE = 0.25

#: Sequences that share a pool, where several do.
SHARING = (4, 16)

#: Rule that others are compared with.
_RANDOM = "random"


def pool_sizes_of(network: Measured, count: int = 7) -> list[int]:
    """Sizes of pools, from a token's own number of experts to all of them."""
    least, most = network.experts.per_token, network.experts.num_experts
    return sorted({int(size) for size in np.rint(np.linspace(least, most, count))})


def draft_bytes(network: Measured, size: int, bits: float) -> float:
    """Bytes that a draft keeps at hand: upper slices of all matrices with their scales, of so many experts per layer; the rest
    of the network in 16 bits."""
    config, slice_bits = network.config, bits + 16 / 32
    total = 0.0
    for kind in config.matrix_kinds:
        parameter = config.layer_parameters[kind]
        share = size / network.experts.num_experts if kind.startswith("expert_") else 1.0
        total += share * parameter.num_layers * float(np.prod(parameter.shape)) * slice_bits / 8
    matrices = sum(
        config.layer_parameters[kind].num_layers * float(np.prod(config.layer_parameters[kind].shape))
        for kind in config.matrix_kinds
    )
    return total + (config.num_parameters() - matrices) * 2


def both_axes(network: Measured, settings: Settings) -> list[dict[str, Any]]:
    """Fig. 5b: acceptance length over the size of the pools and the bit width."""
    ranks, rows = hot_pools(network), []
    for bits in WIDTHS:
        draft = read_network("augmentation", bits, network.stored, network.target, network.config)
        for size in pool_sizes_of(network):
            length = length_of(accepted_tokens(network, draft, ranks, size, settings))
            rows.append({"bits": bits, "pool": size, "bytes": draft_bytes(network, size, bits), **length._asdict()})
    return rows


class PoolRules(NamedTuple):
    """Pools of each rule and size.

    Attributes:
        rows: acceptance lengths.
        gains: those of a rule over those of random pools of equal size, with 95 % intervals over the same texts.
    """

    rows: list[dict[str, Any]]
    gains: list[dict[str, Any]]


def pool_rules(network: Measured, settings: Settings, sharing: Sequence[int]) -> PoolRules:
    """Fig. 17a and b: pools of hot experts, of one sequence or of several together, against random ones of equal size."""
    draft = read_network("augmentation", WIDTH, network.stored, network.target, network.config)
    rules = {_RANDOM: random_pools(network, settings.seed), "hotness": hot_pools(network)}
    rules |= {f"hotness of {count} sequences": hot_pools(network, sharing=count) for count in sharing}
    measured = PoolRules([], [])
    for size in pool_sizes_of(network)[:-1]:
        accepted = {}
        for rule, ranks in rules.items():
            accepted[rule] = accepted_tokens(network, draft, ranks, size, settings)
            measured.rows.append({"rule": rule, "pool": size, "bits": WIDTH, **length_of(accepted[rule])._asdict()})
        for rule in rules:
            if rule != _RANDOM:
                gain = bootstrap(np.divide, accepted[rule], accepted[_RANDOM])
                measured.gains.append({"rule": rule, "pool": size, **gain._asdict()})
    return measured


def cache_hits(network: Measured) -> list[dict[str, float]]:
    """Share of a token's experts that are among the ones its own text chose most before it, for caches of up to half of all.

    Each row has the exponent of its cached share that gives its hits; a power law would have one exponent for all rows.
    """
    ranks = np.asarray(hot_pools(network))
    chosen = np.moveaxis(np.asarray(network.chosen[:, network.text.first :]), 2, 0)
    rank = np.take_along_axis(ranks, chosen, axis=-1)
    rows, experts = [], network.experts.num_experts
    for cached in range(1, experts // 2 + 1):
        share, hits = cached / experts, float(np.mean(rank < cached))
        rows.append({"cached": cached, "share": share, "hits": hits, "exponent": float(np.log(hits) / np.log(share))})
    return rows


def weight_readings(network: Measured, settings: Settings) -> list[dict[str, Any]]:
    """Fig. 17c: what the upper bits are taken for, with all experts in the pool."""
    ranks, rows = hot_pools(network), []
    for bits in WIDTHS:
        for reading in READINGS:
            draft = read_network(reading, bits, network.stored, network.target, network.config)
            length = length_of(accepted_tokens(network, draft, ranks, network.experts.num_experts, settings))
            # Rounding needs one bit more to store what is left of a weight; dedicated weights are stored beside the target's.
            extra = {"rounding": 1.0, DEDICATED: bits + 0.5}.get(reading, 0.0)
            rows.append({"reading": reading, "bits": bits, "extra_bits_per_weight": extra, **length._asdict()})
    return rows


_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, INK)

Rows = Sequence[Mapping[str, Any]]


_figure = functools.partial(paper_figure, Path(__file__).parent)


@styled
def axes_figure(rows: Rows, capacity_bytes: float, name: str) -> Figure:
    """Fig. 5b: acceptance length by pool size and width; what fits into the fast memory is framed."""
    pools, widths = sorted({row["pool"] for row in rows}), sorted({row["bits"] for row in rows})
    value = {(row["bits"], row["pool"]): row for row in rows}
    table = np.array([[value[bits, pool]["mean"] for pool in pools] for bits in widths])
    figure = _figure("axes", name=name, megabytes=capacity_bytes / 1e6)
    axis = figure.subplots()
    image = axis.imshow(table, origin="lower", aspect="auto", cmap="viridis")
    fitting = [
        (i, j) for i, b in enumerate(widths) for j, p in enumerate(pools) if value[b, p]["bytes"] <= capacity_bytes
    ]
    for i, j in np.ndindex(table.shape):
        colour = text_colour_on(image.to_rgba(table[i, j]))
        axis.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", color=colour, fontsize=8)
    for i, j in fitting:
        axis.add_patch(_frame(i, j))
    if fitting:
        i, j = max(fitting, key=lambda place: table[place])
        axis.plot(j, i + 0.3, marker="*", color=ORANGE, markersize=14)
    axis.set_xticks(range(len(pools)), [str(pool) for pool in pools])
    axis.set_yticks(range(len(widths)), [str(bits) for bits in widths])
    axis.set_xlabel("experts in the pool of a layer")
    axis.set_ylabel("bits of a weight")
    figure.colorbar(image, ax=axis, label="drafted tokens accepted")
    return figure


def _frame(i: int, j: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, fill=False, edgecolor=VERMILLION, linewidth=1.6)


@styled
def rules_figure(rows: Rows, name: str) -> Figure:
    """Fig. 17a and b: hot pools of one sequence, of several, and random ones."""
    figure = _figure("rules", name=name, bits=rows[0]["bits"])
    _curves(
        figure, rows, "rule", "pool", list(dict.fromkeys(row["rule"] for row in rows)), "experts in the pool of a layer"
    )
    return figure


@styled
def widths_figure(rows: Rows, name: str) -> Figure:
    """Fig. 17c: what the upper bits of a weight are taken for."""
    figure = _figure("widths", name=name)
    _curves(figure, rows, "reading", "bits", list(READINGS), "bits of a weight")
    return figure


def _curves(figure: Figure, rows: Rows, by: str, over: str, names: Sequence[str], label: str) -> None:
    axis = figure.subplots()
    for name, colour in zip(names, _COLOURS * 2, strict=False):
        own = [row for row in rows if row[by] == name]
        x, y, error = ([row[key] for row in own] for key in (over, "mean", "standard_error"))
        axis.errorbar(x, y, yerr=error, color=colour, label=name, marker="o", markersize=4, linewidth=1.4)
    axis.set_xlabel(label)
    axis.set_ylabel("drafted tokens accepted")
    axis.grid(True)
    axis.legend(fontsize=8)


_NAME = "embedded-moe"
_SETTINGS = Settings()


@functools.cache
def _network() -> Measured:
    return measured_network(load_model(_NAME), _SETTINGS)


def pool_and_bits_figure() -> Figure:
    """Fig. 5b: acceptance over pool size and bit width; framed is what fits into a quarter of the INT8 network's bytes."""
    network = _network()
    capacity = CAPACITY_SHARE * draft_bytes(network, network.experts.num_experts, 8)
    return axes_figure(both_axes(network, _SETTINGS), capacity, _NAME)


def pools_figure() -> Figure:
    """Fig. 17a and b: pools of hot experts, of one sequence and of several together, against random ones."""
    return rules_figure(pool_rules(_network(), _SETTINGS, SHARING).rows, _NAME)


def readings_figure() -> Figure:
    """Fig. 17c: what the upper bits of a weight are taken for."""
    return widths_figure(weight_readings(_network(), _SETTINGS), _NAME)
