"""From a configuration to the things it names: network, text, prompts, device and architecture."""

from __future__ import annotations

import dataclasses
import os
from typing import Protocol

import jax
import numpy as np

from hwmodels import Architecture, Workload, catalog
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.errors import InputError
from jaxspec.models.architecture import architecture_of
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import load_model
from jaxspec.models.stored import as_computed
from jaxspec.settings import CommonConfig
from jaxspec.speculate.proof import continuation_length
from jaxspec.speculate.sampling import Decoding
from jaxspec.text import TextSplit, check_text, load_text, windows
from jaxspec.tune.calibration import target_params
from jaxspec.tune.objective import Pricing


class PricedConfig(Protocol):
    """Settings that say what is priced."""

    @property
    def architecture(self) -> str:
        """Catalog name, config.json, or "own"."""
        ...

    @property
    def batch(self) -> int:
        """Sequences decoded together."""
        ...

    @property
    def context(self) -> int:
        """Cached tokens per sequence."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens of a prompt."""
        ...


@dataclasses.dataclass(frozen=True)
class Setup:
    """A network with its text, ready to be measured.

    Attributes:
        stored: the target's parameters, bfloat16.
        params: the same to decode with (see `as_computed`).
        prompts, calibration: int32 "count token", held-out prompts and calibration text.
        bytes_per_token: of the calibration text.
        notes: what the user should know about the input.
    """

    model_name: str
    config: DecoderConfig
    stored: Params
    params: Params
    text: TextSplit
    prompts: np.ndarray
    calibration_prompts: np.ndarray
    decoding: Decoding
    scheme: Scheme
    bytes_per_token: float
    notes: tuple[str, ...]


def _window_tokens(config: CommonConfig) -> tuple[int, int]:
    """Tokens of a window of calibration text and of a held-out prompt."""
    # Room for the continuation too: some objectives calibrate on the text's own.
    return config.prompt_tokens + continuation_length(config.output_tokens), config.prompt_tokens


def make_setup(config: CommonConfig) -> Setup:
    """Load what the configuration names.

    Raises:
        InputError: anything missing, malformed or too small.
    """
    needed = _window_tokens(config)
    check_text(config.text, needed)  # before a network that may take minutes to load
    loaded = load_model(config.model)
    text = load_text(config.text, loaded.tokenizer, needed=needed)
    dtypes = {str(np.asarray(leaf).dtype) for leaf in jax.tree.leaves(loaded.params)}
    notes = []
    if dtypes != {"bfloat16"}:
        notes.append(
            f"the checkpoint stores {', '.join(sorted(dtypes))}; target and draft are its values rounded to bfloat16"
        )
    stored = target_params(loaded.params)
    prompts = windows(text.held_out, config.prompts, needed[1], config.seed)
    calibration = windows(text.calibration, config.calibration_prompts, needed[0], config.seed)
    sample = text.calibration[:4096]
    return Setup(
        model_name=config.model,
        config=loaded.config,
        stored=stored,
        params=as_computed(stored),
        text=text,
        prompts=prompts,
        calibration_prompts=calibration,
        decoding=Decoding(
            greedy=config.temperature == 0,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
        ),
        scheme=find_scheme(config.scheme, runs=True),
        bytes_per_token=len(loaded.tokenizer.decode(sample).encode()) / max(len(sample), 1),
        notes=tuple(notes),
    )


def resolve_architecture(name: str, own: DecoderConfig | None) -> Architecture:
    """ "own" (the network's shapes), a catalog name, or a Hugging Face config.json (or its directory).

    Raises:
        InputError: unknown name, unreadable file, a family that is not modelled.
    """
    if name == "own":
        if own is None:
            raise InputError("architecture 'own' needs a network; give a catalog name or a config.json")
        return architecture_of(own)
    if os.path.exists(name):  # `Path.exists` raises on names too long for one
        try:
            return catalog.architecture_from_config_file(name)
        except (NotImplementedError, ValueError) as error:
            raise InputError(f"architecture {name!r}: {error}") from error
    try:
        return catalog.architecture(name)
    except catalog.UnknownNameError as error:
        raise InputError(str(error)) from error


def resolve_pricing(config: PricedConfig, device: str, own: DecoderConfig | None) -> Pricing:
    """Device (catalog name or TOML file), architecture and workload.

    Raises:
        InputError: an unknown name or a malformed file.
    """
    try:
        is_file = device.endswith(".toml") or os.path.isfile(device)
        found = catalog.device_from_file(device) if is_file else catalog.device(device)
    except (catalog.UnknownNameError, catalog.EntryError) as error:
        raise InputError(str(error)) from error
    workload = Workload(
        batch=float(config.batch),
        context_tokens=float(config.context),
        prompt_tokens=float(config.prompt_tokens),
        output_tokens=float(getattr(config, "output_tokens", CommonConfig.output_tokens)),
    )
    return Pricing(device=found, architecture=resolve_architecture(config.architecture, own), workload=workload)
