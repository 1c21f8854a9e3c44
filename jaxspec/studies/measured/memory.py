"""How much memory a run needs, estimated from shapes and settings, and whether its layers have to stream through the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.formats.container import Container, packed_form
from jaxspec.host.measuring import device_memory_bytes
from jaxspec.models.checkpoint_files import CheckpointFiles
from jaxspec.models.config import DecoderConfig
from jaxspec.models.described import described_in
from jaxspec.models.embedded import check_model, is_container, model_place
from jaxspec.models.matrix import is_widened
from jaxspec.models.mesh import activation_shares, rows_on_each, split_by_output, values_on_each
from jaxspec.models.stored import SMALL
from jaxspec.models.streamed import stays_in_host
from jaxspec.report.formatting import bytes_in_words
from jaxspec.settings import CommonConfig
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.chunks import chunk_size
from jaxspec.speculate.drafts.factory import kind_of
from jaxspec.speculate.proof import WIDTH
from jaxspec.studies.measured.checking import given_mesh, window_tokens
from jaxspec.tuning.calibration import windows_per_pass

#: Bytes of a stored value.
STORED = 2


#: Bytes of a computed value.
COMPUTED = 4


#: Heads of a Medusa release, each with an LM head of its own.
_MEDUSA_HEADS = 5


class DraftNeed(NamedTuple):
    """Bytes on each device.

    Attributes:
        network: parameters beside the target's.
        per_slot: KV of its own, for each position of a text.
        per_token: activations, for each token of a prompt that it processes.
    """

    network: int = 0
    per_slot: int = 0
    per_token: int = 0


def drafts_of(config: Any) -> tuple[str, ...]:
    """Name of the draft that a run holds; `self` is a compressed copy.

    Args:
        config: of any command that runs a network with one draft.
    """
    return (getattr(config, "draft", SELF),)


def draft_need(name: str, network: DecoderConfig, *, stream: bool, tensor: int = 1) -> DraftNeed:
    """What a draft takes.

    Args:
        network: shape of the target. stream: whether its layers, and those of drafts of its shape, stay in host memory.
        tensor: devices that matrices are split over.
    Raises:
        InputError: files of the draft that cannot be used.
    """
    kind = kind_of(name)
    matrices = matrix_sizes(network, tensor)
    if kind.calibrated or kind.suffix:  # streamed ones are made, or fetched, where they are used
        return DraftNeed() if stream else DraftNeed(network=STORED * matrices + wider_bytes(name, network, tensor))
    if kind.stored_as:  # values read back of 4 bits need more than 16
        return DraftNeed() if stream else DraftNeed(network=COMPUTED * matrices)
    if kind.directory == "head":
        ends = head_size(network, tensor) * (1 if network.tie_embeddings else 2)
        layer = matrix_sizes(network) // network.num_layers  # its own, whole on each device
        return DraftNeed(COMPUTED * (ends + layer), 3 * COMPUTED * network.cached_shape.elements)
    if "medusa" in (kind.model_type, *kind.names):
        return DraftNeed(COMPUTED * _MEDUSA_HEADS * (network.vocab_size + network.hidden_size) * network.hidden_size)
    if kind.directory != "network":
        return DraftNeed()
    own = check_model(name)
    whole, held = own.num_parameters(), parameter_sizes(own, tensor)
    width = 6 * own.hidden_size + 4 * own.intermediate_size + 4 * own.num_heads * own.head_dim
    # A small network is widened once; a cache is read while the next one is written, and a prompt's is written beside both.
    weights = (STORED + COMPUTED if whole <= SMALL else STORED) * held
    return DraftNeed(weights, 3 * COMPUTED * own.num_layers * own.cached_shape.elements, COMPUTED * width)


def wider_bytes(model: str, network: DecoderConfig, tensor: int = 1) -> int:
    """Bytes beyond 16 bits a value of what a container gives back in float32, on each of so many devices that its matrices are
    split over; below 0 of a quantized release that one device holds in codes; 0 of every other model, and of a draft's name."""
    place = model_place(model)
    if network.in_codes and tensor == 1 and not is_container(place):
        files = described_in(place).tensors(CheckpointFiles(place), place).files
        return sum(held.bytes - STORED * math.prod(files.tensors[name].shape) for name, held in files.in_codes.items())
    if not is_container(place):
        return 0
    with Container(place) as container:
        whole = sum(each.form.bytes - packed_form(each).bytes for each in container.tensors.values())
    return whole * matrix_sizes(network, tensor) // matrix_sizes(network)


def parameter_sizes(network: DecoderConfig, tensor: int = 1) -> int:
    """Values of all parameters of a network on each of so many devices that its matrices are split over."""
    outside = {(name,): shape for name, (shape, _) in network.outside_parameters.items()}
    return values_on_each(_of_layers(network) | outside, network, tensor)


def matrix_sizes(network: DecoderConfig, tensor: int = 1) -> int:
    """Values of all matrices of the layers, likewise."""
    return values_on_each({n: shape for n, shape in _of_layers(network).items() if len(shape) > 2}, network, tensor)


def head_size(network: DecoderConfig, tensor: int = 1) -> int:
    """Values of the LM head, likewise."""
    name = "embed" if network.tie_embeddings else "lm_head"
    return values_on_each({(name,): (network.vocab_size, network.hidden_size)}, network, tensor)


def _of_layers(network: DecoderConfig) -> dict[tuple[str, ...], tuple[int, ...]]:
    return {("layers", name): (p.num_layers, *p.shape) for name, p in network.layer_parameters.items()}


#: Room for programs, and for logits that are made piece by piece.
ROOM_BYTES = 1 << 29


#: On a CPU, of libraries and compiled programs; and what LLVM takes while it compiles a backward pass. Measured on x86-64.
_PROCESS_BYTES, _COMPILING_BYTES = 450 << 20, 1200 << 20


def process_bytes(*, gradient: bool = False) -> int:
    """What the process itself takes of the memory that networks are in: of a GPU's nothing."""
    return 0 if jax.default_backend() != "cpu" else _PROCESS_BYTES + _COMPILING_BYTES * gradient


#: A mesh along data and tensor that is none.
ONE_DEVICE = (1, 1)


def calibration_bytes(
    network: DecoderConfig, windows: int, tokens: int, *, stream: bool = False, mesh: tuple[int, int] = ONE_DEVICE
) -> int:
    """What is held of calibration text on each device: KV and hidden states.

    Args:
        windows: of so many tokens. stream: whether KV stays in host memory, but for a layer.
        mesh: devices along data, which share windows, and along tensor, which share heads.
    """
    data, tensor = mesh
    shares, places = activation_shares(network, tensor), rows_on_each(windows, data) * tokens
    mixed = network.mixed_layers
    if mixed is None:
        elements = STORED * network.cached_shape.elements
    else:  # beside the rows that are compressed, the whole cache as it is
        rows = 0 if mixed.attention is None else mixed.attention.elements
        elements = STORED * rows + COMPUTED * network.cached_shape.elements
    kv = elements * places // shares.heads
    hidden = COMPUTED * network.hidden_size * places // shares.hidden
    return hidden + (kv if stream else network.num_layers * kv)


def pass_bytes(
    network: DecoderConfig, windows: int, tokens: int, *, gradient: bool, mesh: tuple[int, int] = ONE_DEVICE
) -> int:
    """What a pass over so many windows takes on each device while it runs.

    Args:
        gradient: whether it is followed by a backward pass, which keeps what enters each layer, and has as many activations.
        others: as for `calibration_bytes`.
    """
    data, tensor = mesh
    shares, places = activation_shares(network, tensor), rows_on_each(windows, data) * tokens
    ways = 2 if gradient else 1
    channels = (3 * ways + network.num_layers * gradient) * network.hidden_size
    inner = 2 * ways * network.intermediate_size
    # With scores of queries and keys.
    heads = ways * (2 * network.num_heads * network.head_dim + network.scored_heads * tokens)
    each = channels // shares.hidden + inner // shares.inner + heads // shares.heads
    # A draft's matrix is made beside what it is made from; in the backward pass, its gradient with them.
    matrices = 2 * ways * network.intermediate_size * network.hidden_size // shares.inner
    # Logits are made when the layers are done with, before these run back.
    return max(COMPUTED * (each * places + matrices), ROOM_BYTES) + 2 * _gathered_head(network, tensor)


def laid_out_anew(network: DecoderConfig, tensor: int) -> int:
    """Bytes of matrices that decoding on a mesh lays out anew on each device, where it reads them in pieces of their rows.

    Their rows are split. Where hidden states are split by channel, devices exchange rows for channels, which takes two copies;
    elsewhere each gathers all rows.
    """
    if not _gathers(network, tensor) or network.num_parameters() <= SMALL:
        return 0
    copies = 2 if activation_shares(network, tensor).hidden > 1 else tensor
    return STORED * copies * split_by_output(network, tensor) + _gathered_head(network, tensor)


def _gathered_head(network: DecoderConfig, tensor: int) -> int:
    """Bytes of the LM head as a program on a mesh gathers it, once for the logits of each network.

    Its rows are split, and a loop over pieces of rows has no use for a part: XLA gathers the whole before the loop, or the
    channels that a device has of the hidden states.
    """
    shares = activation_shares(network, tensor).hidden
    return STORED * network.vocab_size * network.hidden_size // shares if _gathers(network, tensor) else 0


def _gathers(network: DecoderConfig, tensor: int) -> bool:
    """Whether products read pieces of matrices that are split; where they take matrices as these lie, nothing is gathered."""
    return tensor > 1 and is_widened(jnp.dtype("float32"), jnp.dtype(network.stored_dtype))


class MemoryNeed(NamedTuple):
    """Bytes on each device.

    Attributes:
        network: the target and its drafts; of streamed ones, what is not streamed, and a layer.
        calibration: KV and hidden states of the calibration text.
        work: activations of whatever takes most: a gradient step, a pass over calibration text, or decoding; and the process.
    """

    network: int
    calibration: int
    work: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)


class MemoryPlan(NamedTuple):
    """Whether layers stream, devices of the mesh along data and tensor (None: one device), and the line that says so."""

    stream: bool
    mesh: tuple[int, int] | None
    line: str


def memory_need(
    config: CommonConfig,
    network: DecoderConfig,
    prompts: list[int],
    *,
    gradient_windows: int,
    stream: bool,
    drafts: Sequence[str] | None = None,
    mesh: tuple[int, int] = ONE_DEVICE,
) -> MemoryNeed:
    """An estimate, good to about a third; where a network of some hundred million parameters drafts, to about a sixth.

    Args:
        prompts: tokens of each held-out prompt.
        gradient_windows: of a gradient step; 0: there is none.
        drafts: names of those that the run holds at the same time; None: the one of its settings.
        mesh: devices along data, which share windows and prompts, and along tensor, which share matrices.
    """
    (data, tensor), windows, length = mesh, config.calibration_prompts, window_tokens(config)[0]
    # Candidates are scored on as many other windows.
    sets = 2 if gradient_windows else 1
    calibration = sets * calibration_bytes(network, windows, length, stream=stream, mesh=mesh)
    at_once = min(windows, data * windows_per_pass(network, length))
    passes = partial(pass_bytes, network, tokens=length, mesh=mesh)
    work = max(passes(min(windows, gradient_windows), gradient=True), passes(at_once, gradient=False))
    held_drafts = [
        draft_need(name, network, stream=stream, tensor=tensor)
        for name in (drafts_of(config) if drafts is None else drafts)
    ]
    decoding = decoding_bytes(network, prompts, config.output_tokens, held_drafts, mesh)
    own = network_bytes(network, stream=stream, tensor=tensor, model=config.model)
    whole = own + sum(each.network for each in held_drafts)
    if SCHEME_FACTS[config.scheme].head:
        # A draft's own head as decoding reads it; while knobs are tuned, with its gradient.
        head = head_size(network, tensor)
        wide = COMPUTED if network.num_parameters() <= SMALL else 0
        whole, work = whole + (STORED + wide) * head, work + 2 * COMPUTED * head * (gradient_windows > 0)
    own_bytes = process_bytes(gradient=gradient_windows > 0)
    return MemoryNeed(whole, calibration, max(work, ROOM_BYTES + decoding) + own_bytes)


def decoding_bytes(
    network: DecoderConfig,
    prompts: Sequence[int],
    tokens: int,
    drafts: Sequence[DraftNeed],
    mesh: tuple[int, int] = ONE_DEVICE,
) -> int:
    """What decoding takes beside the networks: KV of the target and of the draft that has most; while the prompt is processed,
    what it writes too; on a mesh, matrices that are laid out anew.

    Args:
        prompts: tokens of each. tokens: that are decoded.
        mesh: devices along data, which share prompts, and along tensor, which share the target's heads.
    """
    (data, tensor), longest = mesh, max(prompts)
    slots = longest + tokens + 2 * WIDTH
    own = max((each.per_slot * slots + each.per_token * longest for each in drafts), default=0)
    scores = COMPUTED * network.scored_heads * longest**2
    cached = COMPUTED * network.num_layers * network.cached_shape.elements * 3 * slots
    by_head = (cached + scores) // activation_shares(network, tensor).heads
    at_once = rows_on_each(chunk_size(len(prompts)), data)
    texts = at_once * (by_head + 3 * COMPUTED * WIDTH * network.vocab_size + own)
    return texts + max(laid_out_anew(network, tensor) - ROOM_BYTES, 0)  # the room of every run holds them first


def network_bytes(network: DecoderConfig, *, stream: bool, tensor: int = 1, model: str = "") -> int:
    """What a network's parameters take on each of so many devices that its matrices are split over: of a streamed one, what is
    not streamed, and a layer.

    Args:
        model: its name or path, if it may be a container that gives matrices back in float32.
    """
    whole, matrices, wider = network.num_parameters(), matrix_sizes(network), wider_bytes(model, network, tensor)
    if not stream:
        return parameter_sizes(network, tensor) * (STORED + (2 * COMPUTED if whole <= SMALL else 0)) + wider
    outside = {name: shape for name, (shape, _) in network.outside_parameters.items()}
    tied = network.tie_embeddings
    held = sum(math.prod(shape) for name, shape in outside.items() if not stays_in_host((name,), shape, tied=tied))
    # Of a layer: as it is stored, and its largest matrices as they are computed with.
    return (
        STORED * held + (STORED + COMPUTED) * -(-matrices // network.num_layers) + max(wider, 0) // network.num_layers
    )


def plan_memory(
    config: CommonConfig,
    network: DecoderConfig,
    prompts: list[int],
    *,
    gradient_windows: int,
    drafts: Sequence[str] | None = None,
) -> MemoryPlan:
    """Whether the network streams, or how it is split: as the configuration says, or else so that it fits.

    Args: as for `memory_need`.
    Raises:
        InputError: a mesh of more devices than there are.
    """
    need = partial(memory_need, config, network, prompts, gradient_windows=gradient_windows, drafts=drafts)
    savers = "fewer --calibration-prompts, shorter --prompt-tokens or a smaller draft"
    return plan_by(config, lambda stream, mesh: need(stream=stream, mesh=mesh), network.num_kv_heads, savers)


def plan_by(config: Any, need: Callable[[bool, tuple[int, int]], MemoryNeed], kv_heads: int, savers: str) -> MemoryPlan:
    """The plan of a run, by its need.

    Args:
        config: of a command that streams and splits.
        need: given whether layers stream, and devices along data and tensor.
        kv_heads: of the network, along which its matrices may be split; of several networks, what divides those of all.
        savers: what a user may give to need less, in words.
    Raises:
        InputError: a mesh of more devices than there are.
    """
    there, on_each = device_memory_bytes(), partial(need, False)
    mesh = None if config.stream else _mesh(config, kv_heads, on_each, there)
    unstreamed = on_each(mesh or ONE_DEVICE)
    too_large = unstreamed.total > there
    may_stream = config.mesh is None and jax.process_count() == 1
    stream = too_large and may_stream if config.stream is None else config.stream
    mesh = None if stream else mesh
    taken = need(True, ONE_DEVICE) if stream else unstreamed
    text = f", {bytes_in_words(taken.calibration)} the calibration text" if taken.calibration else ""
    line = (
        f"memory: about {bytes_in_words(taken.total)} ({bytes_in_words(taken.network)} of it the network{text}); there are "
        f"{bytes_in_words(there)}"
    )
    if mesh is not None:
        line += f" on each of {math.prod(mesh)} devices (data={mesh[0]},tensor={mesh[1]})"
    if stream:
        why = (
            "as --stream asks"
            if config.stream
            else f"without that it would take about {bytes_in_words(unstreamed.total)}"
        )
        line += f". Layers stay in host memory and pass through the device one at a time: {why}"
        if taken.total > there:
            line += f". That may not fit: give {savers}"
    elif too_large:
        advice = "leave out --no-stream and --mesh" if jax.process_count() == 1 else "take more devices"
        line += f". That may not fit: {advice}"
    return MemoryPlan(stream, mesh, line)


def _mesh(
    config: Any, kv_heads: int, need: Callable[[tuple[int, int]], MemoryNeed], there: int
) -> tuple[int, int] | None:
    """Devices along both axes; as few for matrices as it takes. None: one device."""
    count = jax.device_count()
    if (given := given_mesh(config)) is not None:
        return given
    if count == 1:
        return None
    ways = [tensor for tensor in range(1, count + 1) if count % tensor == 0 and kv_heads % tensor == 0]
    fitting = (tensor for tensor in ways if need((count // tensor, tensor)).total <= there)
    tensor = next(fitting, ways[-1])
    return count // tensor, tensor
