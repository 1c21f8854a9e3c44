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
class ParallelSettings(Settings, stated_beside=__file__):
    """How the priced network is divided among devices of the same kind."""

    heading: ClassVar[str] = "Several devices"

    tensor_parallel: int = setting(1, low=1, high=MOST_TOGETHER)
    expert_parallel: int = setting(1, low=1, high=MOST_TOGETHER)
    data_parallel: int = setting(1, low=1, high=MOST_TOGETHER)
    pipeline: int = setting(1, low=1, high=MOST_TOGETHER)
    draft_tensor_parallel: int | None = setting(None, low=1, high=MOST_TOGETHER)
    link: str | None = setting(None)


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
class PlacementSettings(Settings, stated_beside=__file__):
    """Where things lie in a device."""

    heading: ClassVar[str] = "Memories and experts"

    placement: PlacementName | None = setting(None)
    decoder_place: DecoderPlace | None = setting(None)


@dataclasses.dataclass(frozen=True)
class ExpertSettings(PlacementSettings, stated_beside=__file__):
    """How experts are stored, chosen and cached."""

    heading: ClassVar[str] = "Memories and experts"

    pool_fits: bool = setting(False)
    expert_bits: float | None = setting(None)
    expert_skew: float = setting(0.0)
    expert_correlation: float = setting(0.0)


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
class StopwatchSettings(Settings, stated_beside=__file__):
    """Whether held-out prompts are decoded against the clock, with speculation and without."""

    heading: ClassVar[str] = "Measured times"

    stopwatch: bool | None = setting(None)
    repeats: int | None = setting(None, unset=str(REPEATS))

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
class CommonConfig(ParallelSettings, PlacementSettings, stated_beside=__file__):
    """Settings of every command that runs a network."""

    heading: ClassVar[str] = "Measuring on text"

    model: str = setting("embedded", names=named_networks, known=known_model)
    architecture: str = setting(
        "llama-3.1-8b",
        names=lambda: ("own", *catalog_architectures()),
        objects="architecture",
        known=known_architecture,
    )
    device: tuple[str, ...] = setting(
        ("rtx-4090-calibrated",), names=catalog_devices, objects="device", known=known_device
    )
    engine: str | None = setting(
        None,
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
    weight_format: str | None = setting(None, names=("fp8", "fp8_block", "sq", "nvfp4"))
    batch: int = setting(1)
    context: int = setting(1024)
    routing: Literal["even", "measured"] = setting("even")
    scheme: NetworkScheme = setting(DEFAULT_SCHEME_NAME, objects="scheme")
    text: str = setting("stdlib")
    temperature: float = setting(0.0)
    top_k: int = setting(0)
    top_p: float = setting(1.0)
    prompts: int | str = setting(96, check=_check_prompts)
    prompt_tokens: int = setting(128)
    output_tokens: int = setting(64)
    stop: tuple[str, ...] | None = setting(None, check=_check_stop)
    calibration_prompts: int = setting(96)
    stream: bool | None = setting(None)
    mesh: str | None = setting(None, check=_check_mesh)
    seed: int = setting(0)

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
