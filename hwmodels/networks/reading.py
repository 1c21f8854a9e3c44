"""An architecture from any Hugging Face config.json, for pricing: sizes alone, no weights.

What decides the sizes is read, and how the weights are stored (`quantization_config`); what decides values only (rotary
settings, activations, scales of logits) is not: `huggingface.keys` lists what becomes of each key. Counts of parameters are
exact, biases and norms included, and are those of the network that decodes: extra heads that predict further tokens are left
out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hwmodels.catalog.architecture_entries import checked_architecture
from hwmodels.catalog.entries import EntryError, near_matches
from hwmodels.network.architecture import Architecture
from hwmodels.networks.families import FAMILIES, family_called
from hwmodels.networks.family import LLAMA_LIKE, Family, Setting
from hwmodels.networks.heads import DraftHead, draft_head
from hwmodels.networks.keys import announced, irrelevance, is_off, keys_of, unknown_keys
from hwmodels.networks.settings import Settings, shown
from hwmodels.networks.sizes import network_spec
from hwmodels.networks.spec import NetworkSpec
from hwmodels.networks.stored import StoredForm, UnpricedFormError, stored_form
from hwmodels.networks.wrappers import nested_in, nested_text

__all__ = [
    "ConfigReading",
    "architecture_from_config",
    "architecture_from_config_file",
    "check_fixed",
    "draft_head_in_file",
    "head_architecture",
    "positions_of_config",
    "read_config",
    "read_config_file",
    "unmodelled_feature",
]

#: Keys that state the sizes of linear attention where a family has it, and in what its matrices are kept.
_LINEAR_KEYS = ("linear_", "mamba_ssm_dtype")
_EXTRA_PREDICTION_KEYS = (
    *("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_layers", "num_mtp_modules"),
    "mtp_num_hidden_layers",
)

#: Keys of towers that see or hear, which only a network with a `text_config` may have: there they can be told apart.
_TOWERS = ("vision_config", "audio_config", "speech_config")

_SIZES = (
    *("num_hidden_layers", "hidden_size", "intermediate_size"),
    *("num_attention_heads", "num_key_value_heads", "vocab_size"),
)
#: What an unknown family must state to be read as a Llama-like decoder.
_LLAMA_NEEDS = (*_SIZES, "tie_word_embeddings", "hidden_act", "rms_norm_eps")
#: What else of its sizes it may state without being another kind of network.
_LLAMA_MAY_HAVE = ("quantization_config", "compression_config", "attention_bias", "head_dim", "mlp_bias")

#: Sizes without which a file is taken for damaged, even where the family has a default.
_ALWAYS_STATED = ("num_hidden_layers", "hidden_size")


class ConfigReading(NamedTuple):
    """What config.json describes.

    Attributes:
        architecture: every leaf a float.
        notes: what a user should know: what was left out, what was assumed, which keys nothing reads.
        stored: in what form the release stores weights and cache; None: in 16 bits, or in a form that a note names.
    """

    architecture: Architecture
    notes: tuple[str, ...]
    stored: StoredForm | None = None


def architecture_from_config(raw: Mapping[str, Any]) -> Architecture:
    """The architecture that a parsed config.json describes; see `read_config`."""
    return read_config(raw).architecture


def architecture_from_config_file(path: str | Path) -> Architecture:
    """The architecture that a config.json describes; see `read_config_file`."""
    return read_config_file(path).architecture


def read_config_file(path: str | Path) -> ConfigReading:
    """Read a config.json, and what `hf_quant_config.json` beside it says where it says nothing of quantization itself.

    Args:
        path: the file, or the folder that holds it.
    Raises:
        EntryError: the file cannot be read or is no JSON object; see `read_config`.
        NotImplementedError: see `read_config`.
    """
    path = _config_path(path)
    beside = path.parent / "hf_quant_config.json"
    quantization = _parsed(beside) if path.name == "config.json" and beside.is_file() else None
    return read_config(_parsed(path), where=str(path), quantization=quantization)


def draft_head_in_file(path: str | Path) -> DraftHead | None:
    """The draft head that a config.json describes; None: it describes no head, or cannot be read.

    Args:
        path: the file, or the folder that holds it.
    Raises:
        EntryError: see `draft_head`.
    """
    try:
        raw = _parsed(_config_path(path))
    except EntryError:
        return None
    return draft_head(raw)


def head_architecture(head: DraftHead, target: Architecture, *, where: str = "config.json") -> Architecture:
    """The sizes of a head's own layers; what its file leaves out is the target's.

    Raises:
        EntryError, NotImplementedError: see `read_config`.
    """
    if family_called(kind := head.sizes.get("model_type")) is None:
        kind = "llama"
    like = {"vocab_size": target.vocab_size, "hidden_size": target.hidden_size, "num_attention_heads": target.num_heads}
    like |= {"num_key_value_heads": target.num_kv_heads, "intermediate_size": target.intermediate_size}
    like = {key: int(value) for key, value in like.items() if value} | {"num_hidden_layers": 1}
    return read_config({**like, **head.layers, "model_type": kind}, where=where).architecture


def _config_path(path: str | Path) -> Path:
    path = Path(path)
    return path / "config.json" if path.is_dir() else path


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EntryError(f"{path}: cannot be read ({error.strerror}); give the path of a config.json") from error
    except (ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise EntryError(f"{path}: cannot be read as JSON: {problem}; give the path of a config.json") from error


def read_config(raw: Mapping[str, Any], *, where: str = "config.json", quantization: Any = None) -> ConfigReading:
    """Read a parsed config.json: of a known family, or of one that is Llama-like by every key that it has.

    A key that the file lacks has the default of its family's configuration class in transformers, except the number of
    layers and the hidden size, which must be stated. Of a multimodal network its `text_config` is read.

    Args:
        where: the file's name, for messages.
        quantization: content of ModelOpt's `hf_quant_config.json`, where there is one; what the file itself says goes first.
    Raises:
        EntryError: no JSON object; a needed key is missing; a value is of the wrong kind or out of range; sizes do not
            fit together.
        NotImplementedError: a feature that `Architecture` cannot describe, or a key of an unknown family that may be one; a
            draft head, which is no network of its own.
    """
    if not isinstance(raw, Mapping):
        raise EntryError(f"{where}: is {shown(raw)}; it must be a JSON object, as Hugging Face's config.json is")
    notes: list[str] = []
    _refuse_head(raw, where)
    whole, file, nested = raw, where, nested_in(raw)
    if nested is not None:
        raw = _text_part(raw, nested, where, notes)
        where = f"{where}: text_config"
    name = raw.get("model_type")
    if not isinstance(name, str) or not name:
        raise EntryError(
            f"{where}: model_type is {shown(name)}; it must be a text such as {', '.join(list(FAMILIES)[:3])}"
        )
    family = family_called(name)
    linear = family is not None and family.linear
    modelled = (*(_LINEAR_KEYS if linear else ()), *(() if family is None else family.announced))
    _refuse_unmodelled(raw, where, modelled, experts=family is None or family.experts is not None)
    if family is None:
        family = _llama_like(raw, name, where, notes)
    settings = Settings(raw, family.defaults, family.spellings, where)
    if nested is None:
        for key in _ALWAYS_STATED:
            if not settings.stated(key) and not callable(family.defaults.get(key)):
                raise settings.error(key, "is missing; a config.json states it")
        for key in _TOWERS:
            if raw.get(key):
                raise NotImplementedError(
                    f"{where}: {key} beside the decoder's own sizes is not modelled; allowed is a text_config of its own"
                )
    check_fixed(settings, family, name, family.must_equal)
    assumed = [f"{key} = {family.defaults[key]}" for key in _SIZES if _silent(settings, family, key)]
    if assumed:
        notes.append(f"not stated, so as the family {name} has it: {', '.join(assumed)}")
    for key in _EXTRA_PREDICTION_KEYS:
        if settings.get(key):
            notes.append(f"{key} is {shown(settings.get(key))}: layers that predict further tokens are not counted")
    spec = network_spec(settings, family)
    notes.extend(spec.notes)
    architecture = checked_architecture(spec.architecture_values(), where=where)
    stored = _stored(whole, raw, quantization, (family, spec, architecture), notes)
    read = {*settings.read, *keys_of(family), *_SIZES, *_EXTRA_PREDICTION_KEYS, *_LLAMA_MAY_HAVE}
    unread = unknown_keys(raw, read)
    if whole is not raw:
        unread += [key for key in unknown_keys(whole, read) if key not in raw and not key.endswith("_config")]
    if unread:
        notes.append(f"keys of {file} that are not known here, and left out of all prices: {', '.join(unread)}")
    if settings.size("num_hidden_layers") == 1:
        notes.append("one layer alone: if this is an EAGLE head, give its kind as the draft (eagle or eagle3)")
    return ConfigReading(architecture, tuple(notes), stored)


def _stored(
    whole: Mapping[str, Any],
    raw: Mapping[str, Any],
    beside: Any,
    network: tuple[Family, NetworkSpec, Architecture],
    notes: list[str],
) -> StoredForm | None:
    """The form that the file states, the whole network's first; a note first of all where it is not priced."""
    keys = ("quantization_config", "compression_config")
    stated = next((part[key] for part in (whole, raw) for key in keys if not is_off(part.get(key))), beside)
    if is_off(stated):
        return None
    try:
        if not isinstance(stated, Mapping):
            raise UnpricedFormError(shown(stated))
        if stated is not beside and isinstance(beside, Mapping) and isinstance(beside.get("quantization"), Mapping):
            cache = {"kv_cache_quant_algo": beside["quantization"].get("kv_cache_quant_algo")}
            stated = {**stated, **({} if stated.get("kv_cache_scheme") or stated.get("kv_cache_quant_algo") else cache)}
        return stored_form(stated, *network)
    except UnpricedFormError as error:
        notes.insert(0, f"weights are priced in 16 bits: of the release's quantization, {error} is not modelled")
        return None


def _refuse_head(raw: Mapping[str, Any], where: str) -> None:
    if (head := draft_head(raw)) is not None:
        priced = "give it as the draft of its target" if head.drafts_as else "give a network"
        raise NotImplementedError(f"{where}: {head.sign}: {head.title}, which is no network of its own; {priced}")


#: Scalings of rotary positions whose file states the scaled length already.
_SCALED_LENGTHS = ("default", "llama3", "su", "longrope")


def positions_of_config(raw: Mapping[str, Any]) -> int | None:
    """Tokens of the longest text that the network of a parsed config.json is made for; None: the file does not say.

    Source: vLLM derives the same from `max_position_embeddings` and the scaling of rotary positions, get_and_verify_max_len.
    """
    nested = nested_in(raw)
    text = nested_text(raw, nested) if isinstance(nested, Mapping) else raw
    family = family_called(str(text.get("model_type"))) or LLAMA_LIKE
    stated = Settings(text, family.defaults, family.spellings, "config.json").get("max_position_embeddings")
    scaling = text.get("rope_scaling") or text.get("rope_parameters") or {}
    if not isinstance(stated, int) or not isinstance(scaling, Mapping):
        return stated if isinstance(stated, int) else None
    kind, factor = scaling.get("rope_type", scaling.get("type", "default")), scaling.get("factor")
    if kind in _SCALED_LENGTHS or not isinstance(factor, int | float):
        return stated
    original = scaling.get("original_max_position_embeddings") if kind == "yarn" else None
    return round((original if isinstance(original, int) else stated) * factor)


def _text_part(raw: Mapping[str, Any], nested: Any, where: str, notes: list[str]) -> dict[str, Any]:
    if not isinstance(nested, Mapping):
        raise EntryError(f"{where}: text_config is {shown(nested)}; it must be an object")
    others = [
        key for key in raw if isinstance(key, str) and key.endswith("_config") and raw[key] and key != "text_config"
    ]
    left_out = [key for key in others if not key.startswith(("quantization", "compression"))]
    notes.append(
        f"the text decoder of {shown(raw.get('model_type'))}, as its text_config describes it"
        + (f"; {', '.join(left_out)} not counted" if left_out else "")
    )
    _refuse_unmodelled(raw, where)
    return nested_text(raw, nested)


def _refuse_unmodelled(
    raw: Mapping[str, Any], where: str, modelled: tuple[str, ...] = (), *, experts: bool = True
) -> None:
    unmodelled = announced(raw, modelled, experts=experts)
    if unmodelled is not None:
        raise NotImplementedError(f"{where}: {unmodelled}, which is not modelled; allowed is a decoder without it")


def unmodelled_feature(raw: Mapping[str, Any]) -> str | None:
    """What a config.json or its `text_config` announces that no network here has, behind the key that does; None: nothing."""
    nested = raw.get("text_config")
    return announced(raw) or (announced(nested) if isinstance(nested, Mapping) else None)


def _llama_like(raw: Mapping[str, Any], name: str, where: str, notes: list[str]) -> Family:
    known = f"{len(FAMILIES)} families are known, which the documentation lists under 'Families that run'"
    near = near_matches(name[:40], FAMILIES).strip()
    unknown = f"{where}: model_type {shown(name)} is not known" + (f" ({near})" if near else "")
    missing = [key for key in _LLAMA_NEEDS if raw.get(key) is None]
    if missing:
        raise NotImplementedError(f"{unknown}, and without {', '.join(missing)} it is not Llama-like; {known}")
    allowed = {*_LLAMA_NEEDS, *_LLAMA_MAY_HAVE}
    odd = [
        str(key)
        for key, value in raw.items()
        if key not in allowed and not is_off(value) and irrelevance(str(key), ordinary=True) is None
    ]
    if odd:
        raise NotImplementedError(
            f"{unknown}, and {shown(odd)} may change its shape; a Llama-like decoder has none; {known}"
        )
    if raw["hidden_act"] not in ("silu", "swish"):
        raise NotImplementedError(
            f"{unknown}, and its hidden_act is {shown(raw['hidden_act'])}; a Llama-like decoder has 'silu'; {known}"
        )
    notes.append(
        f"model_type {shown(name)} is not known: read as a Llama-like decoder, as every key of the file allows"
    )
    return LLAMA_LIKE


def check_fixed(settings: Settings, family: Family, name: str, fixed: Mapping[str, Any]) -> None:
    """Keys have the only value that is modelled, or that of another key; those of the family's own list may be null.

    Raises:
        NotImplementedError: one has another value.
    """
    for key, value in fixed.items():
        wanted = settings.get(value.key) if isinstance(value, Setting) else value
        stated = settings.get(key)
        if stated is None and (key in family.must_equal or not settings.stated(key)):
            continue
        # Equal and of the same kind: 1 is not true.
        if stated != wanted or isinstance(stated, bool) != isinstance(wanted, bool):
            allowed = "null" if wanted is None else repr(wanted)
            raise NotImplementedError(
                f"{settings.prefix}{name} with {key} = {shown(stated)} is not modelled; allowed is {allowed}"
            )


def _silent(settings: Settings, family: Family, key: str) -> bool:
    default = family.defaults.get(key)
    return default is not None and not callable(default) and not settings.stated(key)
