"""How weights of published networks are stored: bits, and kernels that multiply them, by precisions as logs write them."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from hwmodels import Architecture, parameters
from hwmodels.network.architecture import ALL_LAYER_MATRICES, EXPERT_MATRICES, KINDS, uniform_weight_bits
from hwmodels.numerics.scalars import Leaf
from hwmodels.tables import read_table

__all__ = ["BESIDES", "SIXTEEN_BITS", "WORDS", "NotPricedError", "Stored", "kv_bits", "stored", "weight_bits"]

#: Between the causes of a row that has several.
BESIDES = "; besides, "

#: Elements of a group that share a scale and an offset of 16 bits each, unless a precision says how many:
_GROUP = 128.0  # of AWQ, GPTQ and kernels named W4A16; the papers' and the tools' default
_SMALL_GROUP = 64.0  # of "4-bit": MLX's and bitsandbytes' default
_OF_A_GROUP = 32.0

#: Bits per weight of llama.cpp's blocks: bytes of a block over its elements (ggml-common.h).
_GGUF = {"2_k": 2.625, "3_k": 3.4375, "4_0": 4.5, "4_1": 5.0, "4_k": 4.5, "5_0": 5.5, "5_1": 6.0, "5_k": 5.5}
_GGUF |= {"6_k": 6.5625, "8_0": 8.5, "1_s": 1.5625, "1_m": 1.75, "2_xxs": 2.0625, "2_xs": 2.3125, "2_s": 2.5625}
_GGUF |= {"2_m": 2.7, "3_xxs": 3.0625, "3_s": 3.4375, "3_m": 3.66, "4_nl": 4.5, "4_xs": 4.25}


class NotPricedError(ValueError):
    """This row cannot be predicted: the message says why."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """How a network is stored.

    Attributes:
        bits: per weight of its quantized matrices, scales and offsets included.
        formats: names in a calibration of kernels that also quantize activations, the wanted one first; none: activations
            keep 16 bits.
        ends_too: whether embedding and LM head are quantized; engines of GPUs leave them at 16 bits.
        experts_alone: whether nothing but routed experts is.
        others_bits: per weight of matrices that are not routed experts then.
        head_bits: per weight of the LM head, where a precision names it apart; None: as `ends_too` has it.
    """

    bits: float
    formats: tuple[str, ...] = ()
    ends_too: bool = False
    experts_alone: bool = False
    others_bits: float = 16.0
    head_bits: float | None = None
    file_bytes: float | None = None  # of all weights, where a precision says it: their mean width counts then


#: Weights in 16 bits, and what is taken where a row is silent.
SIXTEEN_BITS = Stored(16.0)

#: After "4-bit": words of scalar formats; codebooks and vectors of 3 bits are read in other ways.
_PLAINLY = r"(?=[ -]*(?:$|[,;(]|group|gs?[0-9]|quant|affine|weight|integer|awq|gptq|mlx|auto-?round|dwq|bnb|hqq))"

#: Words of published rows, by what they name.
WORDS = read_table(__package__, "words.toml")

#: A part of a precision that is about the LM head, what it says beside the head's name, and that the head is as it was.
_PARTS = re.compile(r"[+,;]|\b(?:and|with)\b|(?=\b(?:except|without|exclud|but)\w*)")
_HEAD = re.compile(r"\b(?:lm|output)[ _-]?head\b")
_FILLERS = re.compile(r"\b(?:in|at|as|is|kept|stored|the|bits? per weight)\b")
_AS_IT_WAS = re.compile(r"except|without|exclu|unquanti|\b(?:not|no|un)\b")


def stored(precision: str) -> Stored:
    """How weights of a precision are stored; 16 bits where nothing is written.

    Raises:
        NotPricedError: a precision that is not known.
    """
    parts = _PARTS.split(re.sub(r"\(([^()]*head[^()]*)\)", r", \1,", precision.lower()))
    heads = [part for part in parts if _HEAD.search(part)]
    if not heads:
        return _stored(precision, precision)
    rest = _stored(", ".join(part.strip() for part in parts if part not in heads and part.strip()), precision)
    said = _FILLERS.sub(" ", _HEAD.sub(" ", heads[-1])).strip()
    bits = SIXTEEN_BITS.bits if _AS_IT_WAS.search(said) else _stored(said, precision).bits
    return dataclasses.replace(rest, head_bits=bits)


def _stored(said: str, precision: str) -> Stored:
    """Args: said: of a precision, about one kind of its weights."""
    text = re.sub(r"[(,;+][^(,;+)]*\bkv[^,;)]*\)?", "", said.strip().lower())  # the cache has a width of its own
    for known in WORDS["precisions"]:
        if re.search(known["words"], text):
            fields: dict[str, Any] = {**known, "formats": tuple(known.get("formats", ()))}
            del fields["words"]
            return Stored(**fields)
    block = re.search(r"\b(?:ud-)?i?q([1-8])_(k|[01]|nl|xxs|xs|s|m)(?![a-z0-9])", text)
    if block and (bits := _GGUF.get(f"{block[1]}_{block[2]}")):
        size = re.search(r"([0-9.]*[0-9]) ?g(i?)b\b", text)
        whole = float(size[1]) * (2.0**30 if size[2] else 1e9) if size else None
        return Stored(bits, ends_too=True, file_bytes=whole)
    if mean := re.search(r"\b([2-8](?:\.[0-9]+)?) ?bpw\b", text):  # of ExLlama's formats: bits per weight, all included
        return Stored(float(mean[1]))
    width = re.search(rf"\bint([2-8])|\bw([2-8])a(?:4|8|16)|\b([2-8])[ -]?bit{_PLAINLY}|\b(?:uint|nf|q)([2-8])\b", text)
    if width is None and not re.search(r"awq|gptq", text):
        raise NotPricedError(
            f"precision {precision!r} is not known; known are such as bf16, fp8, fp8 block, w8a8, int8, int4, awq, gptq, "
            "nvfp4, mxfp4, q4_k, 4-bit (group-64)"
        )
    bits = 4.0 if width is None else float(next(filter(None, width.groups())))
    plain = width is not None and width[3] is not None and not re.search(r"awq|gptq", text)
    group = re.search(r"group[ _-]?(?:size)?[ =_-]*([1-9][0-9]{0,3})|\bgs?([1-9][0-9]{1,3})\b", text)
    size = float(group[1] or group[2]) if group else _SMALL_GROUP if plain else _GROUP
    return Stored(bits + _OF_A_GROUP / size, ends_too=plain)


def kv_bits(*texts: str) -> float:
    """Bits per element of keys and values: 8 where a precision or a note says so, else 16."""
    eight = r"(fp8|int8|8[ -]?bit)[ _-]*kv\b|\bkv[ _-]*(cache)?[ _-]*(dtype)?[ =:]*(fp8|int8|8[ -]?bit)"
    return 8.0 if any(re.search(eight, text.lower()) for text in texts) else 16.0


def weight_bits(how: Stored, architecture: Architecture) -> dict[str, Leaf]:
    """Kind of weight -> bits read, of a network that is stored so."""
    kinds = KINDS if how.ends_too else ALL_LAYER_MATRICES
    if how.experts_alone and float(architecture.num_experts):
        return uniform_weight_bits(how.others_bits) | dict.fromkeys(EXPERT_MATRICES, how.bits)
    width = how.bits
    if how.file_bytes is not None:
        width = how.file_bytes * 8.0 / sum(float(count) for count in parameters(architecture).values())
    bits = uniform_weight_bits(width, kinds)
    return bits if how.head_bits is None else bits | {"lm_head": how.head_bits}
