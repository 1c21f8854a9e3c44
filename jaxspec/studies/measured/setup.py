"""From a configuration to the things it names: network, text, prompts."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxspec.compress.expert_pool import without_experts
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.compress.weights import target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.stored import as_computed
from jaxspec.settings import CommonConfig
from jaxspec.speculate.ragged import padded
from jaxspec.speculate.sampling import Decoding
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs, window_tokens
from jaxspec.studies.measured.target import load_target
from jaxspec.text import TextSplit


@dataclasses.dataclass(frozen=True)
class Setup:
    """A network with its text, ready to be measured.

    Attributes:
        loaded: the checkpoint, its parameters in 16 bits where the run has them: drafts are made of it.
        stored: the target's parameters, as the scheme makes them of the checkpoint's in 16 bits.
        params: the same to decode with (see `as_computed`).
        prompts: int32 "prompt token", held-out prompts, each followed by zeros up to the longest one's length.
        prompt_lengths: " prompt", tokens of each.
        categories: of the held-out prompts, empty where a prompt has none.
        stop: tokens after which a held-out prompt's decoding ends, rising.
        calibration_prompts: int32 "count token", windows of calibration text.
        bytes_per_token: of the calibration text.
        notes: what the user should know about the input.
    """

    model_name: str
    loaded: LoadedModel
    config: DecoderConfig
    stored: Params
    params: Params
    text: TextSplit
    prompts: np.ndarray
    prompt_lengths: np.ndarray
    categories: tuple[str, ...]
    stop: tuple[int, ...]
    calibration_prompts: np.ndarray
    decoding: Decoding
    scheme: Scheme
    bytes_per_token: float
    notes: tuple[str, ...]


def make_setup(
    config: CommonConfig,
    checked: CheckedInputs | None = None,
    *,
    stream: bool = False,
    mesh: tuple[int, int] | None = None,
) -> Setup:
    """Load what the configuration names.

    Args:
        checked: from `check_inputs`, which is called unless it is given.
        stream: leave layers in host memory (see `Streamed`).
        mesh: devices along data and tensor; None: one device.
    Raises:
        InputError: anything missing, malformed or too small.
    """
    checked = checked or check_inputs(config)
    text, window = checked.text, window_tokens(config)[0]
    target = load_target(config.model, stream=stream, mesh=mesh)
    loaded, dtypes = target.loaded, target.stored_as
    notes = list(checked.notes)
    if wide := target.wide:
        others = f"; its {' and '.join(sorted(dtypes - wide))} values stay as they are" if dtypes - wide else ""
        notes.append(
            f"the checkpoint stores {', '.join(sorted(dtypes))}; target and draft have its {' and '.join(sorted(wide))} values "
            f"rounded to bfloat16{others}"
        )
    if loaded.packed:
        notes.append(
            f"the checkpoint stores matrices in {' and '.join(sorted(loaded.packed))}; they are run and priced as the bfloat16 "
            "values that they stand for, so that AR as stored reads 16 bits too; in how many bits a lossless code stores such "
            "values says nothing about a network in 16 bits"
        )
    scheme = find_scheme(config.scheme, runs=True).of_dtype(loaded.config.stored_dtype)
    stored = target_network(scheme, loaded.params)
    shape = _stored_shape(loaded.config, scheme)
    if not scheme.lossless:
        notes.append(
            f"the target is the network as {scheme.name} stores it; acceptance and losslessness are about that one"
        )
    if told := without_experts(config.model, scheme, loaded.config):
        notes.append(told)
    prompts, lengths = padded(checked.prompts)
    calibration = text.calibration_windows(config.calibration_prompts, window, config.seed)
    sample = text.calibration[:4096]
    return Setup(
        model_name=config.model,
        loaded=loaded,
        config=shape,
        stored=stored,
        params=as_computed(stored),
        text=text,
        prompts=prompts,
        prompt_lengths=lengths,
        categories=checked.categories,
        stop=checked.stop,
        calibration_prompts=calibration,
        decoding=Decoding(
            greedy=config.temperature == 0,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
        ),
        scheme=scheme,
        bytes_per_token=checked.tokenizer.num_bytes(sample) / max(len(sample), 1),
        notes=tuple(notes),
    )


def stored_by(setup: Setup, scheme: Scheme) -> Setup:
    """The same network as another scheme stores it.

    Args:
        setup: of a lossless scheme, whose target is the uncompressed network.
    """
    assert setup.scheme.lossless, "what a scheme has changed, another cannot undo"
    scheme = scheme.of_dtype(setup.config.stored_dtype)
    stored = target_network(scheme, setup.stored)
    params = setup.params if scheme.lossless else as_computed(stored)
    return dataclasses.replace(
        setup, config=_stored_shape(setup.config, scheme), stored=stored, params=params, scheme=scheme
    )


def _stored_shape(config: DecoderConfig, scheme: Scheme) -> DecoderConfig:
    """The network's shape with the form in which the scheme's target keeps its KV cache."""
    return dataclasses.replace(config, shared_kv_exponents=scheme.facts.shared_exponents or config.shared_kv_exponents)
