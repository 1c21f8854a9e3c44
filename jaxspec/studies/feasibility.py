"""What a reader of a result should know: whether what is priced is possible, and which kernels its times rest on."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from hwmodels import Architecture, Device, Footprint, catalog
from hwmodels.analysis.kernel_widths import kernel_remarks, kernel_widths
from hwmodels.analysis.remarks import encoder_remarks, group_remarks, linear_remarks
from hwmodels.network.architecture import dense_layers
from hwmodels.numerics.scalars import Number
from hwmodels.numerics.units import GB
from jaxspec.errors import InputError
from jaxspec.models.rope import LongRopeScaling
from jaxspec.models.special_tokens import json_beside, read_beside
from jaxspec.models.tokenizer import Vocabulary, shared_vocabulary
from jaxspec.settings.draft_kinds import has_files
from jaxspec.settings.schemes import RELEASED
from jaxspec.studies.release import priced_form

if TYPE_CHECKING:
    from jaxspec.models.config import DecoderConfig

__all__ = [
    "TextLength",
    "capacity_bytes",
    "check_blocks",
    "check_positions",
    "contexts_within",
    "kernel_notes",
    "memory_notes",
    "position_notes",
    "priced_pair",
    "unaccepted_notes",
    "weight_block",
]

#: What vLLM calls a device's share of a matrix.
_OUTPUT, _INPUT = "output_partition_size = {} {} block_n = {}", "input_size_per_partition = {} {} block_k = {}"


#: Rows and columns that share a scale in FP8 releases: weight_block_size of DeepSeek-V3 and Qwen3 in FP8.
_FP8_BLOCK = (128, 128)


def priced_pair(draft: str, own: Architecture, target: str, architecture: Architecture) -> tuple[str, ...]:
    """What a user should know of a draft network that is priced for a target; names of the catalog, or a config.json's.

    Raises:
        InputError: other tokens than the target's.
    """
    return shared_vocabulary(_priced_tokens("draft", draft, own), _priced_tokens("target", target, architecture))


def _priced_tokens(role: str, name: str, architecture: Architecture) -> Vocabulary:
    called, size = f"{role} {name!r}", int(architecture.vocab_size)
    if not os.path.exists(name):
        return Vocabulary(called, size, catalog.architecture_tokenizer(name))
    place = Path(name)
    from jaxspec.models.embedded import is_container
    from jaxspec.models.gguf import is_gguf

    folder = place if place.is_dir() or is_container(place) or is_gguf(place) else place.parent
    return Vocabulary(called, size, None, read_beside(folder, "tokenizer.json"))


def weight_block(config: Any) -> tuple[int, int] | None:
    """Rows and columns of the blocks in which the target of settings is stored; None: without blocks."""
    form = priced_form(config) if getattr(config, "scheme", None) == RELEASED.name else None
    if form is not None and form.block is not None:
        return form.block
    return _FP8_BLOCK if config.weight_format == "fp8_block" else None


def check_blocks(name: str, a: Architecture, block: tuple[int, int] | None, parallelism: catalog.Parallelism) -> None:
    """Refuse devices that would cut the blocks of a network's matrices, as vLLM and SGLang do.

    Args:
        name: what the network is called, for messages.
        block: of `weight_block`.
    Raises:
        InputError: a share of a matrix is no whole number of blocks.
    Source: vLLM, validate_fp8_block_shape and Fp8MoEMethod.create_weights.
    """
    tensor, ways = parallelism.tensor, max(parallelism.tensor // parallelism.expert, 1)
    if block is None or tensor == 1:
        return
    rows, columns = block
    latent, heads, dim = bool(float(a.kv_lora_rank)), int(a.num_heads), int(a.head_dim)
    dense = float(dense_layers(a)) > 0
    experts = int(a.expert_intermediate_size)
    inner = [int(a.intermediate_size) * dense, int(a.shared_intermediate_size)]
    keys = 0 if latent else int(a.num_kv_heads) * dim
    # (whose, size, devices, side of a block, what vLLM calls the share)
    shares = [
        ("columns of an expert", experts, ways, rows, "the output_size of gate's and up's weight = {} {} block_n = {}"),
        ("columns of an expert", experts, ways, columns, "the input_size of down's weight = {} {} block_k = {}"),
        *(("inner columns", size, tensor, rows, _OUTPUT) for size in inner),
        *(("inner columns", size, tensor, columns, _INPUT) for size in inner),
        ("columns of queries", heads * (dim + int(a.rope_head_dim) * latent), tensor, rows, _OUTPUT),
        ("columns of keys", keys, min(tensor, int(a.num_kv_heads)), rows, _OUTPUT),
        ("columns of heads", heads * (int(a.v_head_dim) if latent else dim), tensor, columns, _INPUT),
    ]
    for whose, size, parts, side, said in shares:
        if parts > 1 and size % (parts * side):
            whole = [n for n in range(1, parts) if not parts % n and not size % (n * side)]
            fewer = f"at most {whole[-1]}" if whole else "another format"
            more = ", or expert_parallel, which keeps experts whole" if size == experts and ways > 1 else ""
            raise InputError(
                f"{name} is stored in blocks of {rows} x {columns}, which {parts} devices cut: {size:,} {whose} / {parts}: "
                f"{said.format(f'{size / parts:g}', 'is not divisible by weight quantization', side)}, which vLLM and SGLang "
                f"refuse; give {fewer}{more}"
            )


def position_notes(texts: Mapping[str, float]) -> tuple[str, ...]:
    """What is said of texts that are longer than a priced network was made for, in which its rotary positions do not end.

    Args:
        texts: name of a network -> tokens of the longest text that is priced with it.
    """
    limits = {name: _made_for(name) for name in texts}
    return tuple(
        f"{name} is made for texts of {limit:,} tokens, and a text of {texts[name]:,.0f} is priced: engines refuse it by "
        f"default, and beyond {limit:,} it may guess poorly"
        for name, limit in limits.items()
        if limit is not None and texts[name] > limit
    )


def _made_for(name: str) -> int | None:
    """Tokens of the longest text that a network by name or path is made for; None: nobody says."""
    if os.path.exists(name):
        place = Path(name)
        from jaxspec.models.embedded import is_container  # with all that networks need
        from jaxspec.models.gguf import is_gguf

        alone = not (place.is_dir() or is_container(place) or is_gguf(place))
        raw = json.loads(place.read_text(encoding="utf-8")) if alone else json_beside(place, "config.json")
        return catalog.positions_of_config(raw)
    try:
        return catalog.architecture_positions(name)
    except catalog.UnknownNameError:
        return None


def capacity_bytes(device: Device) -> float:
    """Of all memories of a device."""
    return sum(float(tier.capacity_bytes) for tier in device.tiers)


def memory_notes(device: Device, held: Mapping[str, float]) -> tuple[str, ...]:
    """What is said where weights and KV do not fit a device.

    Args:
        held: what is priced, in words -> bytes on the fullest device, at least.
    """
    room = capacity_bytes(device)
    over = {what: float(size) for what, size in held.items() if float(size) > room}
    if not over:
        return ()
    what, size = max(over.items(), key=lambda item: item[1])
    few = "" if len(over) == 1 else f" (and {len(over) - 1} more)"
    taken, there = (f"{n / GB:,.0f}" if n >= 1000 * GB else f"{n / GB:.3g}" for n in (size, room))
    return (
        f"does not fit: weights and KV take {taken} GB on a device, {what}{few}, and it has {there} GB; its "
        "times are those of a larger memory: take more devices, fewer bits, a smaller batch, a shorter context, or a device "
        "file whose [[spill]] holds the rest",
    )


def unaccepted_notes(accepted: Mapping[str, float | None]) -> tuple[str, ...]:
    """A hint for each draft of which no token was ever accepted.

    Args:
        accepted: draft -> alpha_token as it was measured; None: nothing was drafted.
    """
    cause = (
        "check that it has the target's tokenizer with the same token ids, that prompts have the chat template that both were "
        "trained with, and that its weights are those that its config.json describes"
    )
    return tuple(
        f"no token of draft {name!r} was ever accepted: {cause if has_files(name) else 'on such texts it gains nothing'}"
        for name, share in accepted.items()
        if share == 0.0
    )


def check_positions(name: str, architecture: Architecture, tokens: float) -> None:
    """Refuse to price a text that a network with a table of positions cannot take.

    Args:
        name: what the network is called, for messages.
        tokens: of the longest text.
    Raises:
        InputError: the table has fewer rows.
    """
    rows = float(architecture.learned_positions)
    if rows and tokens > rows:
        raise InputError(
            f"architecture {name!r} has a table of {rows:,.0f} positions, and a text of {tokens:,.0f} tokens is to be priced; "
            "give a shorter context, prompt or output, or a network without such a table"
        )


def contexts_within(architecture: Architecture, contexts: Iterable[int]) -> tuple[int, ...]:
    """Those contexts behind which a network still has a position for the token of a step, rising, each once.

    Args:
        contexts: cached tokens.
    """
    rows = float(architecture.learned_positions)
    return tuple(sorted({context for context in contexts if not rows or context < rows}))


@dataclasses.dataclass(frozen=True)
class TextLength:
    """The longest text that a run decodes with a network.

    Attributes:
        prompt: tokens of the longest prompt. behind: tokens behind it at most.
        called: what those behind are.
        advice: how to need fewer.
    """

    prompt: int
    behind: int
    called: str
    advice: str

    @property
    def tokens(self) -> int:
        """Of the whole text."""
        return self.prompt + self.behind

    def check(self, model: str, network: DecoderConfig) -> None:
        """Learned positions end somewhere, and beyond their end a table's last row would be read without a word.

        Raises:
            InputError: the text is longer.
        """
        learned = network.learned_positions
        if learned is not None and learned.positions < self.tokens:
            raise InputError(f"{model} has {learned.positions} positions; {self} need {self.tokens}: {self.advice}")

    def beyond_training(self, model: str, network: DecoderConfig) -> tuple[str, ...]:
        """Notes on texts longer than a network was made for, which are decoded, as rotary positions do not end; and on texts
        that grow past the length where LongRoPE changes its factors."""
        notes: tuple[str, ...] = ()
        scaling = network.rope_scaling
        if isinstance(scaling, LongRopeScaling) and scaling.original_max_position_embeddings < self.tokens:
            original = scaling.original_max_position_embeddings
            notes = (
                f"{model} rotates by other factors beyond {original} tokens (LongRoPE): a text that grows past them keeps the "
                "keys in its cache as they are, where generate of transformers computes them anew, so that words may differ",
            )
        from jaxspec.models.embedded import model_place

        stated = catalog.positions_of_config(json_beside(model_place(model), "config.json"))
        if network.learned_positions is not None or stated is None or stated >= self.tokens:
            return notes
        return (
            *notes,
            f"{model} is made for texts of {stated} tokens; {self} take {self.tokens}, and beyond {stated} it may guess "
            "poorly",
        )

    def of_draft(self, name: str) -> tuple[str, ...]:
        """`check` and `beyond_training` of a draft by its name, which reads the same text where it is a network of its own.

        Raises:
            InputError: the text is longer, or the draft cannot be read.
        """
        from jaxspec.models.embedded import check_model
        from jaxspec.speculate.drafts.factory import kind_of

        if kind_of(name).directory != "network":
            return ()
        network = check_model(name)
        self.check(name, network)
        return self.beyond_training(name, network)

    def __str__(self) -> str:
        """In words, as a plural."""
        return f"prompts of up to {self.prompt} tokens with {self.behind} {self.called} behind them"


def kernel_notes(
    device: Device,
    footprints: Sequence[Footprint],
    *,
    batches: Iterable[Number],
    architecture: Architecture | None = None,
    draft: Architecture | None = None,
    when: str = "at any moment",
    texts: Mapping[str, float] | None = None,
    held: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The fields `kernel_widths` and `notes` of an entry.

    Args:
        footprints: all that are priced on the device; leaves "*b".
        batches, when: sequences decoded together, all numbers of them that are priced; see `group_remarks`.
        architecture: of the priced network, leaves "*b"; None: of several ones.
        draft: of a draft network of its own; None: there is none.
        texts, held: see `position_notes` and `memory_notes`; None: nothing is said of them.
    Returns:
        "kernel_widths": bits by what is known of their kernels, see `hwmodels.analysis.KernelWidths`; None for a device that is
        not calibrated. "notes": sentences for a reader.
    """
    flat = [jax.tree.map(lambda leaf: np.ravel(np.asarray(jax.device_get(leaf), np.float64)), f) for f in footprints]
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *flat)
    networks = [one for one in (architecture, draft) if one is not None]
    experts = None if architecture is None else any(np.any(np.asarray(one.num_experts) > 0) for one in networks)
    widths = kernel_widths(device, together, experts=experts)
    return {
        "kernel_widths": None if widths is None else {k: list(v) for k, v in dataclasses.asdict(widths).items()},
        "notes": [
            *kernel_remarks(device, together, experts=experts),
            *encoder_remarks(device, together),
            *linear_remarks(device, networks),
            *group_remarks(device, batches, when=when),
            *position_notes(texts or {}),
            *memory_notes(device, held or {}),
        ],
    }
