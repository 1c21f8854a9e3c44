"""How quantized releases that run pack their weights, by `quantization_config`, where names of tensors do not say it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hwmodels.networks.settings import shown

__all__ = ["Packing", "packing_of"]

#: Formats of compressed-tensors whose tensors are read.
_FORMATS = (
    *("dense", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision"),
    *("nvfp4-pack-quantized", "mxfp4-pack-quantized"),
)


@dataclasses.dataclass(frozen=True)
class Packing:
    """What config.json says of a quantized release, where names of tensors do not.

    Attributes:
        method: `quant_method`.
        bits: of a code; 0: not stated, or several.
        offset: see `gptq_values`.
        block: rows and columns that share a scale, of weights in blocks.
    """

    method: str
    bits: int = 4
    offset: int = 1
    block: tuple[int, int] | None = None


def packing_of(stated: Mapping[str, Any]) -> Packing:
    """The form of a `quantization_config`.

    Raises:
        NotImplementedError: one that is not read here.
    """
    method, bits = stated.get("quant_method"), stated.get("bits", 4)
    if method == "compressed-tensors":
        groups = stated.get("config_groups")
        entries = [group for group in (groups if isinstance(groups, dict) else {}).values() if isinstance(group, dict)]
        for form in (entry.get("format") for entry in (stated, *entries)):
            if form is not None and form not in _FORMATS:
                allowed = ", ".join(_FORMATS)
                raise NotImplementedError(f"format {shown(form)} of compressed-tensors; allowed are {allowed}")
        weights = [own for group in entries if isinstance(own := group.get("weights"), dict)]
        blocks = [own["block_structure"] for own in weights if own.get("block_structure") is not None]
        widths = {width for own in weights if type(width := own.get("num_bits")) is int}
        return Packing(method, widths.pop() if len(widths) == 1 else 0, block=_pair(blocks[0]) if blocks else None)
    whole, order = type(bits) is int, stated.get("checkpoint_format", "gptq")
    if method == "gptq" and whole and bits in (2, 3, 4, 8) and order in ("gptq", "gptq_v2"):
        return Packing(method, bits, offset=int(order == "gptq"))
    if method == "awq" and bits == 4 and str(stated.get("version", "gemm")).lower() == "gemm":
        return Packing(method)
    if (method == "modelopt" and stated.get("quant_algo") in ("FP8", "NVFP4")) or method == "fbgemm_fp8":
        return Packing(str(method))
    if method == "bitsandbytes" and stated.get("load_in_4bit") is True:
        return Packing(method)
    whole_network = stated.get("global_quant_config")
    weight = whole_network.get("weight") if isinstance(whole_network, dict) else None
    if method == "quark" and isinstance(weight, dict) and {**weight, **_QUARK} == weight:
        return Packing(method)
    size = stated.get("weight_block_size")
    if method == "fp8" and stated.get("fmt", "e4m3") in ("e4m3", "float8_e4m3fn") and (size is None or _pair(size)):
        return Packing(method, block=_pair(size))
    said = ", ".join(f"{key} {shown(stated[key])}" for key in _SAID if key in stated) or "no more"
    raise NotImplementedError(
        f"quant_method {shown(method)} with {said}; "
        "read are compressed-tensors, gptq (2, 3, 4, 8 bits), awq (4 bits, gemm), fp8 (E4M3), fbgemm_fp8, FP8 and NVFP4 of "
        "modelopt, bitsandbytes (4 bits), MXFP4 of quark, and mxfp4 in families released so"
    )


#: What a release of Quark says of weights in MXFP4.
_QUARK = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}

#: Keys that a refusal repeats.
_SAID = (
    "bits",
    "version",
    "checkpoint_format",
    "quant_algo",
    "fmt",
    "weight_block_size",
    "load_in_4bit",
    "load_in_8bit",
)


def _pair(block: Any) -> tuple[int, int] | None:
    whole = isinstance(block, list) and len(block) == 2 and all(type(size) is int and size > 0 for size in block)
    return (block[0], block[1]) if whole else None
