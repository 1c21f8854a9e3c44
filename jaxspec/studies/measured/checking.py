"""What settings name, read and checked without reading weights: seconds, before gigabytes are digested or loaded."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hwmodels import Case
from jaxspec.compress.knobs import Knobs, check_stored_dtype, uniform_knobs
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.formats.container import Container, packed_form
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.config import DecoderConfig
from jaxspec.models.embedded import check_model, is_container, model_place
from jaxspec.models.special_tokens import end_tokens
from jaxspec.models.tokenizer import Tokenizer, load_tokenizer
from jaxspec.settings.common import NO_STOP, OWN_STOP, CommonConfig, StopwatchSettings, check_stopwatch, mesh_sizes
from jaxspec.settings.draft_kinds import SELF, knob_values
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.drafts import check_draft
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies.draft_widths import run_form
from jaxspec.studies.engine_pricing import check_routing, placed
from jaxspec.studies.feasibility import TextLength
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.release import with_kernels
from jaxspec.text import Encoder, TextSplit, check_text, load_text, num_within, read_prompts, without_beginning
from jaxspec.text.documents import STDLIB


def stop_tokens(config: CommonConfig, place: Path, tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    """Ids of the tokens after which a held-out prompt ends, rising; none: all are decoded to the same length.

    Args:
        place: directory or container of the network.
    Raises:
        InputError: a name that is no token, or the model's own where it has none.
    """
    if config.stop is None:
        return end_tokens(place, vocab_size=vocab_size) if config.own_prompts else ()
    if NO_STOP in config.stop:
        return ()
    stops: set[int] = set()
    for name in config.stop:
        if name == OWN_STOP:
            own = end_tokens(place, vocab_size=vocab_size)
            if not own:
                raise InputError(
                    f"stop {name!r} came, and neither generation_config.json nor config.json of {config.model!r} has "
                    "eos_token_id; name tokens or ids instead"
                )
            stops |= set(own)
            continue
        token = int(name) if name.isdecimal() and len(name) < 10 else tokenizer.token_id(name)
        if token is None or token >= vocab_size:
            raise InputError(
                f"stop {name!r} is no token of {config.model!r}; allowed are {OWN_STOP}, {NO_STOP}, texts of single tokens, "
                f"and ids from 0 to {vocab_size - 1}"
            )
        stops.add(token)
    return tuple(sorted(stops))


@dataclasses.dataclass(frozen=True)
class CheckedInputs:
    """What a configuration names, apart from the weights.

    Attributes:
        network: shape of the network that runs.
        pricings: by device, in the order of the configuration.
        prompts: held-out prompts as token ids, of any lengths.
        categories: of the prompts, empty where a prompt has none.
        stop: tokens after which a held-out prompt's decoding ends, rising.
        notes: what the user should know about them.
    """

    network: DecoderConfig
    pricings: dict[str, Case]
    tokenizer: Tokenizer
    text: TextSplit
    prompts: list[np.ndarray]
    categories: tuple[str, ...]
    stop: tuple[int, ...]
    notes: tuple[str, ...]


def window_tokens(config: CommonConfig) -> tuple[int, int]:
    """Tokens of a window of calibration text, and of one of held-out text: none where prompts come from elsewhere."""
    # Room for the continuation too: some objectives calibrate on the text's own.
    calibration = config.prompt_tokens + continuation_length(config.measured_tokens)
    return calibration, 0 if config.own_prompts else config.prompt_tokens


def given_mesh(config: Any) -> tuple[int, int] | None:
    """Devices along data and tensor that a configuration asks for; None: it leaves that open.

    Raises:
        InputError: more devices than there are.
    """
    if config.mesh is None:
        return None
    sizes, count, processes = mesh_sizes(config.mesh), jax.device_count(), jax.process_count()
    if math.prod(sizes.values()) > count:
        raise InputError(
            f"mesh is {config.mesh!r}; {count} {'device is' if count == 1 else 'devices are'} there: give fewer along an axis"
        )
    if processes > 1 and math.prod(sizes.values()) < count:
        raise InputError(
            f"mesh is {config.mesh!r}; {processes} processes have {count} devices: give all of them, or start fewer processes"
        )
    return sizes["data"], sizes["tensor"]


def check_processes(config: Any) -> None:
    """What several processes cannot do together.

    Raises:
        InputError: settings ask for it.
    """
    count = jax.process_count()
    if count == 1:
        return
    if config.stream:
        raise InputError(f"stream came with {count} processes, whose devices hold a network together; leave it out")
    if isinstance(config, StopwatchSettings) and config.stopwatch:
        raise InputError(
            f"stopwatch came with {count} processes, whose waiting for one another it would time; leave it out, or start one"
        )


def check_inputs(config: CommonConfig) -> CheckedInputs:
    """Read and check all that a configuration names, what costs least first; of weights only the headers are read.

    Raises:
        InputError: anything missing, malformed or too small.
    """
    own = config.architecture == "own"
    # Names are resolved before any file is opened, so that a misspelt device costs nothing.
    resolve = lambda network, form=None: {
        name: placed(resolve_pricing(with_kernels(config, name, form), name, network), config, name)
        for name in config.device
    }
    priced = {} if own else resolve(None)
    check_processes(config)
    given_mesh(config)
    needed = window_tokens(config)
    check_text(config.text, needed)
    scheme = find_scheme(config.scheme, runs=True)
    # Of another draft, a scheme that changes no target is not used.
    used = drafts_itself(config) or not scheme.facts.lossless
    several = any(getattr(config, name, ()) for name in ("self_drafts", "compressions", "tuned"))
    network = check_model(config.model, codes=not (several or (used and scheme.facts.takes_bits)))
    if used:
        check_stored_dtype(scheme, network)
    _check_clock(config, network)
    form = run_form(config.model, codes=network.in_codes)
    priced = priced if priced and form is None else resolve(network, form)
    check_routing(config, network, priced)
    of_drafts = tuple(note for name in _named_drafts(config) for note in check_draft(name, network, config.model))
    place = model_place(config.model)
    tokenizer = load_tokenizer(place, vocab_size=network.vocab_size)
    chat = load_chat_template(place)
    stop = stop_tokens(config, place, tokenizer, network.vocab_size)
    # A file of prompts is short, a text may be long.
    own_prompts = read_prompts(str(config.prompts), Encoder(tokenizer, chat)) if config.own_prompts else None
    prompts = None if own_prompts is None else own_prompts.tokens
    text = load_text(config.text, tokenizer, needed=needed, chat=chat)
    held_out = _held_out(config, text) if prompts is None else prompts
    if isinstance(config, StopwatchSettings):
        check_stopwatch(config, len(held_out))
    length = text_length(config, max(map(len, held_out)))
    length.check(config.model, network)
    notes = text.notes + length.beyond_training(config.model, network) + _about_its_draft(config, place)
    notes += of_drafts + tuple(note for name in _named_drafts(config) for note in length.of_draft(name))
    if chat is not None and config.text == STDLIB:
        what = "drafts are calibrated" if config.own_prompts else "all is measured"
        notes += (
            f"{config.model} has a chat template, and {what} on Python source of the standard library; acceptance depends on "
            "the text: give yours with --text and --prompts",
        )
    if config.own_prompts and config.stop is None and not stop:
        notes += (
            f"{config.model} names no token that ends a text; every prompt is decoded to {config.output_tokens} tokens",
        )
    if copies := len(prompts or ()) - len({prompt.tobytes() for prompt in prompts or ()}):
        notes += (
            f"{copies} of {len(held_out)} prompts repeat others; error bars take prompts as independent and are too narrow: "
            "give each once",
        )
    plain = [without_beginning(prompt, text.beginning) for prompt in prompts or ()]
    if prompts and (known := num_within(plain, text.calibration)):
        notes += (
            f"{known} of {len(prompts)} prompts stand in the text that drafts are calibrated on, so that acceptance may be "
            "lower on others; give prompts of other text",
        )
    return CheckedInputs(
        network=network,
        pricings=priced,
        tokenizer=tokenizer,
        text=text,
        prompts=held_out,
        categories=("",) * len(held_out) if own_prompts is None else own_prompts.categories,
        stop=stop,
        notes=notes,
    )


def _check_clock(config: CommonConfig, network: DecoderConfig) -> None:
    """Raise InputError where a run is to be timed whose network computes otherwise than its price says."""
    if isinstance(config, StopwatchSettings) and config.stopwatch and network.linear is not None:
        raise InputError(
            "stopwatch came, and the network has linear attention, which runs over slots of all tokens and is priced by its "
            "states: allowed are networks without; leave stopwatch out"
        )


def given_knobs(config: Any, network: DecoderConfig) -> Knobs:
    """Knobs of a self-draft as settings give them, the same everywhere.

    Args:
        config: settings with a field for each knob (see `NetworkKnobSettings`).
    Raises:
        InputError: one that is out of range for the type that the network is stored in.
    """
    return uniform_knobs(find_scheme(config.scheme, runs=True), network, knob_values(config))


def drafts_itself(config: Any) -> bool:
    """Whether settings make one draft of the target's bits, by their scheme."""
    return not hasattr(config, "named_drafts") and getattr(config, "draft", SELF) == SELF


def _named_drafts(config: Any) -> tuple[str, ...]:
    """Of studies that measure several drafts, or one."""
    one = getattr(config, "draft", None)
    return (*getattr(config, "named_drafts", ()), *(() if one is None else (one,)))


def _about_its_draft(config: CommonConfig, place: Path) -> tuple[str, ...]:
    """A note where a container holds a draft that these settings do not decode with: self-drafts are made of its target."""
    if not is_container(place) or config.model in _named_drafts(config):
        return ()
    with Container(place) as container:
        scheme, has_draft = container.scheme, container.has_draft
        wider = any(packed_form(tensor) != tensor.form for tensor in container.tensors.values())
    if not has_draft:
        return ()
    rounded = (
        f"{config.model} gives back integers times scales in float32, which the target keeps; drafts of scheme {config.scheme} "
        "are made of them rounded to bfloat16",
    )
    return (
        *(rounded if wider and SCHEME_FACTS[config.scheme].prunes else ()),
        f"{config.model} holds a draft of scheme {scheme}, which is not the one measured here (of scheme {config.scheme}, made "
        f"anew of the file's target); jaxspec compare --model {config.model} --drafts {config.model} measures it, by the bytes "
        "of the file",
    )


def text_length(config: CommonConfig, longest: int) -> TextLength:
    """The longest text that is decoded, calibration's among them.

    Args:
        longest: tokens of the longest prompt that is decoded.
    """
    held_out = longest, continuation_length(config.output_tokens)
    calibration = config.prompt_tokens, continuation_length(config.measured_tokens)
    return TextLength(
        *max(held_out, calibration, key=sum),
        "decoded and drafted",
        "give shorter prompts (calibration's have --prompt-tokens), or fewer --output-tokens"
        + (" and --continuation-tokens" if config.measured_tokens > config.output_tokens else ""),
    )


def _held_out(config: CommonConfig, text: TextSplit) -> list[np.ndarray]:
    """Prompts cut from held-out text, all of one length."""
    return list(text.held_out_windows(int(config.prompts), config.prompt_tokens, config.seed))
