"""Settings that several commands share: those of all that run a network; several devices, experts, the stopwatch."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from jaxspec.errors import InputError
from jaxspec.registries import entry_names, known_names
from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.catalog_names import (
    catalog_architectures,
    catalog_devices,
    known_architecture,
    known_device,
    known_engine,
    known_model,
    named_networks,
)
from jaxspec.settings.coercion import shown
from jaxspec.settings.draft_kinds import knob_values
from jaxspec.settings.fields import Among, setting
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, NetworkScheme

__all__ = [
    "ALONE",
    "DRAFT_WITHIN_TARGET",
    "MOST_TOGETHER",
    "NO_STOP",
    "OWN_STOP",
    "PARALLEL",
    "POOLS_UNUSED",
    "REPEATS",
    "CommonConfig",
    "DecoderPlace",
    "ExpertSettings",
    "ParallelSettings",
    "PlacementSettings",
    "StopwatchSettings",
    "check_stopwatch",
    "mesh_sizes",
    "refuse_own_architecture",
]

#: Devices along one way of dividing a network.
MOST_TOGETHER = 1024


@dataclasses.dataclass(frozen=True)
class ParallelSettings(Settings):
    """How the priced network is divided among devices of the same kind."""

    heading: ClassVar[str] = "Several devices"

    tensor_parallel: int = setting(1, "Tensor parallelism: devices that share every matrix.", low=1, high=MOST_TOGETHER)
    expert_parallel: int = setting(
        1,
        "Expert parallelism: devices that divide the routed experts of each layer, each expert whole.",
        low=1,
        high=MOST_TOGETHER,
    )
    data_parallel: int = setting(
        1,
        "Replicas, each with a part of the batch; expert_parallel may divide the experts among them.",
        low=1,
        high=MOST_TOGETHER,
    )
    pipeline: int = setting(
        1, "Pipeline parallelism: stages, each with a part of the layers.", low=1, high=MOST_TOGETHER
    )
    draft_tensor_parallel: int | None = setting(
        None,
        "Devices that share every matrix of a separate draft network.",
        low=1,
        high=MOST_TOGETHER,
        unset="tensor_parallel, as in vLLM and SGLang",
    )
    link: str | None = setting(
        None, "Link between the devices, such as nvlink4, pcie5 or infiniband-ndr.", unset="the device's own"
    )


#: Names of these settings.
PARALLEL = tuple(field.name for field in dataclasses.fields(ParallelSettings))

#: One device.
ALONE = ParallelSettings()


#: Refuses `draft_tensor_parallel` of a command that prices no draft network of its own.
DRAFT_WITHIN_TARGET = Unused(
    ("draft_tensor_parallel",), lambda config: "the draft is a part of the target, and is shared as it is"
)


#: Our own placements.
_PLACEMENTS = ("in_order", "experts_first", "external", "expert_cache", "bit_slices", "draft_copies", "by_mode")

if TYPE_CHECKING:
    #: A name of `hwmodels.memory.placement.PLACEMENTS`.
    PlacementName = str
else:
    #: The same, of all that are registered.
    PlacementName = Annotated[str, Among(lambda: known_names("placement", _PLACEMENTS))]


#: Names of `hwmodels.decoders.decoder.PLACES`, likewise.
DecoderPlace = Literal["dma", "l2", "array_edge"]


@dataclasses.dataclass(frozen=True)
class PlacementSettings(Settings):
    """Where things lie in a device."""

    heading: ClassVar[str] = "Memories and experts"

    placement: PlacementName | None = setting(
        None,
        "Which memory holds KV, weights and experts, on a device with several memories.",
        unset="the device's own, or KV first, then dense weights, then experts",
    )
    decoder_place: DecoderPlace | None = setting(
        None,
        "Where the device's decoders sit: in the DMA or memory controller before the last memory on the chip, between that "
        "(L2) and the links, or at the compute unit.",
        unset="the device's own",
    )


@dataclasses.dataclass(frozen=True)
class ExpertSettings(PlacementSettings):
    """How experts are stored, chosen and cached."""

    heading: ClassVar[str] = "Memories and experts"

    pool_fits: bool = setting(
        False, "Let a draft step choose among the most popular experts only, as many as fit the first memory."
    )
    expert_bits: float | None = setting(
        None,
        "Bits per weight of routed experts, stored and read by draft and verification (MXFP4: 4.25).",
        low=0,
        high=64,
        above=True,
        unset="the scheme's",
    )
    expert_skew: float = setting(
        0.0, "Unevenness of routing: exponent of the power law of the experts' popularity.", low=0, high=10
    )
    expert_correlation: float = setting(
        0.0, "Correlation between the experts chosen by neighbouring tokens of a sequence.", low=0, high=1
    )


def _no_pool(config: Any) -> str | None:
    if EXPERT_POOL.name in knob_values(config):
        return None
    return f"the draft of scheme {config.scheme} chooses among all experts"


#: Settings of a draft's pool that are refused where they change nothing, for settings with the knobs of a scheme.
POOLS_UNUSED = (
    Unused((EXPERT_POOL.name,), lambda config: config.pool_fits, "pool_fits says how many experts a draft has"),
    Unused(("pool_fits",), _no_pool),
)


#: Rounds unless another number is given.
REPEATS = 7


@dataclasses.dataclass(frozen=True)
class StopwatchSettings(Settings):
    """Whether held-out prompts are decoded against the clock, with speculation and without."""

    heading: ClassVar[str] = "Measured times"

    stopwatch: bool | None = setting(
        None,
        "Also time decoding on this machine, with and without speculation: the first prompts in batches of --batch.",
        unset="no",
    )
    repeats: int | None = setting(None, "Rounds of the stopwatch.", low=3, high=1000, unset=str(REPEATS))

    unused = (
        Unused(("repeats",), lambda config: not config.stopwatch, "without stopwatch, nothing is timed"),
        Unused(
            ("stream",),
            lambda config: config.stopwatch and config.stream,
            "the stopwatch times networks in the device's memory",
        ),
    )

    @property
    def rounds(self) -> int:
        """Of the stopwatch."""
        return REPEATS if self.repeats is None else self.repeats


def refuse_own_architecture(name: str) -> None:
    """Raise InputError where a command that loads no network is asked for a network's own architecture."""
    if name == "own":
        raise InputError("architecture 'own' needs a network; give a catalog name or a config.json")


def check_stopwatch(config: Any, prompts: int) -> None:
    """Raise InputError where a run that is timed has fewer held-out prompts than a batch.

    Args:
        config: a `StopwatchSettings` with a batch.
        prompts: how many there are.
    """
    if config.stopwatch and prompts < config.batch:
        raise InputError(
            f"stopwatch decodes {config.batch} prompts together (batch), and there {'is' if prompts == 1 else 'are'} "
            f"{prompts}; give more prompts or a smaller batch"
        )


#: Along one axis of a mesh.
MOST_DEVICES = 65_536


#: Stands among stop tokens for the model's own ones that end a text.
OWN_STOP = "eos"

#: Stands for no stop token at all.
NO_STOP = "none"


def _check_prompts(prompts: int | str) -> None:
    # `os.path.isfile`, not `Path.is_file`, which raises on names too long for one.
    if isinstance(prompts, str) and not os.path.isfile(prompts):
        raise InputError(f"prompts {shown(prompts)} is neither a whole number nor a file; check the path")


def _check_stop(names: tuple[str, ...]) -> None:
    if NO_STOP in names and len(names) > 1:
        raise InputError(f"stop is {','.join(names)!r}; {NO_STOP!r} stands alone: leave it out, or the others")


def mesh_sizes(text: str) -> dict[str, int]:
    """Devices along each axis of a mesh, 1 where nothing is said.

    Raises:
        InputError: another form, or an axis twice.
    """
    axes, sizes = ("data", "tensor"), {}
    for part in text.split(","):
        name, _, number = (piece.strip() for piece in part.partition("="))
        if name not in axes or not number.isdecimal() or not 1 <= int(number) <= MOST_DEVICES:
            raise InputError(f"mesh is {shown(text)}; give the devices along its axes, as in 'data=4,tensor=2'")
        if name in sizes:
            raise InputError(f"mesh is {shown(text)}, with {name} twice; give each axis once, as in 'data=4,tensor=2'")
        sizes[name] = int(number)
    return dict.fromkeys(axes, 1) | sizes


def _check_mesh(text: str) -> None:
    mesh_sizes(text)


@dataclasses.dataclass(frozen=True)
class CommonConfig(ParallelSettings, PlacementSettings):
    """Settings of every command that runs a network."""

    heading: ClassVar[str] = "Measuring on text"

    model: str = setting(
        "embedded",
        "'embedded', 'embedded-moe', 'smollm2-135m', a Hugging Face directory or GGUF file of a family that runs (see jaxspec "
        "models), an id of the Hub that is in its cache, or a container.",
        names=named_networks,
        known=known_model,
    )
    architecture: str = setting(
        "llama-3.1-8b",
        "Network whose cost is predicted: catalog name, 'own', a Hugging Face config.json, or a GGUF file.",
        names=lambda: ("own", *catalog_architectures()),
        objects="architecture",
        known=known_architecture,
    )
    device: tuple[str, ...] = setting(
        ("rtx-4090-calibrated",),
        "Devices, separated by commas: catalog names (see jaxspec devices) or your own TOML files.",
        names=catalog_devices,
        objects="device",
        known=known_device,
    )
    engine: str | None = setting(
        None,
        "Engine of a calibrated GPU: trtllm, vllm (vllm-2025: releases up to 0.12) or sglang. It sets the measured kernels; "
        "for vllm and sglang, the time that the engine adds to a cycle is included. Of any device: llama.cpp (Metal on "
        "Apple), mlx or mlx-cuda, whose kernels take instructions for each row of a verification. With a file of jaxspec "
        "calibrate: jax, this package's own loop as measured there.",
        unset="the device's own kernels (trtllm), no added time",
        names=lambda: (
            "trtllm",
            "vllm",
            "vllm-2025",
            "sglang",
            "llama.cpp",
            "mlx",
            "mlx-cuda",
            "jax",
            *entry_names("engine"),
        ),
        known=known_engine,
    )
    weight_format: str | None = setting(
        None,
        "Kernels of a calibrated GPU that also quantize activations, for weights narrower than 16 bits: fp8, fp8_block, sq or "
        "nvfp4.",
        unset="kernels with 16-bit activations",
        names=("fp8", "fp8_block", "sq", "nvfp4"),
    )
    batch: int = setting(1, "Sequences decoded together, for the predicted cost.", low=1, high=4096)
    context: int = setting(1024, "Cached tokens per sequence, for the predicted cost.", low=0, high=10_000_000)
    routing: Literal["even", "measured"] = setting(
        "even",
        "How tokens choose experts in a mixture whose cost is predicted: evenly, or as measured on the routers of the network "
        "that runs.",
    )
    scheme: NetworkScheme = setting(
        DEFAULT_SCHEME_NAME, "Storage scheme of the target and its draft.", objects="scheme"
    )
    text: str = setting(
        "stdlib",
        '\'stdlib\', a text file, or JSON lines (.jsonl; on each line "text" or "messages"): the first half calibrates, the '
        "second half is held out.",
    )
    temperature: float = setting(0.0, "Temperature of decoding; 0 is greedy.", low=0, high=10)
    top_k: int = setting(0, "Sample from the k most probable tokens only; 0: from all.", low=0, high=10_000_000)
    top_p: float = setting(
        1.0, "Sample from the most probable tokens that together reach probability p; 1: from all.", low=1e-6, high=1
    )
    prompts: int | str = setting(
        96,
        "Number of held-out prompts cut from the text; or a file of your own prompts of any lengths: one per line, or JSON "
        'lines (.jsonl; on each line "prompt", "text" or "messages"; results are shown by "category" where lines have one).',
        low=1,
        high=100_000,
        quick=24,
        check=_check_prompts,
    )
    prompt_tokens: int = setting(128, "Tokens of each prompt that is cut from the text.", low=2, high=1_000_000)
    output_tokens: int = setting(64, "Tokens decoded per prompt.", low=1, high=1_000_000, quick=32)
    stop: tuple[str, ...] | None = setting(
        None,
        "Tokens that end decoding earlier: 'eos' (the model's own), 'none', ids or texts of tokens, separated by commas.",
        unset="eos with a file of prompts, otherwise none",
        check=_check_stop,
    )
    calibration_prompts: int = setting(
        96, "Prompts of calibration text, on which drafts are tuned.", low=1, high=100_000, quick=24
    )
    stream: bool | None = setting(
        None,
        "Keep the layers in host memory and load them one at a time, for networks larger than the device.",
        unset="only if the network would not fit otherwise",
    )
    mesh: str | None = setting(
        None,
        "Devices (of all processes) over which to split: texts over data, matrices over tensor, such as 'data=4,tensor=2'.",
        unset="all devices, matrices split only as far as memory requires",
        check=_check_mesh,
    )
    seed: int = setting(0, "Seed of text windows, steps and samples.", low=0, high=2**31 - 1)

    @property
    def own_prompts(self) -> bool:
        """Whether the held-out prompts come from a file of the user's own."""
        return isinstance(self.prompts, str)

    @property
    def measured_tokens(self) -> int:
        """Tokens of a calibration text, behind its prompt, that drafts are measured on."""
        return self.output_tokens

    unused = (
        Unused(
            ("top_k", "top_p"),
            lambda config: config.temperature == 0,
            "greedy decoding takes the likeliest token; give a temperature",
        ),
        Unused(("mesh",), lambda config: config.stream, "with stream, layers pass through one device"),
    )
