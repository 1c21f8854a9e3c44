"""Linear attention in config.json: its sizes and its layers, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hwmodels.catalog.huggingface import Family, layers_with_linear_attention
from jaxspec.models.blocks import Attention, GatedDeltaNet, GroupedAttention
from jaxspec.models.config_values import integer
from jaxspec.models.linear_sizes import LinearSizes

if TYPE_CHECKING:
    from jaxspec.models.config import DecoderConfig

__all__ = ["linear_pattern", "read_linear", "written_linear"]

#: Field of `LinearSizes` -> key of config.json.
_KEYS = {
    "key_heads": "linear_num_key_heads",
    "value_heads": "linear_num_value_heads",
    "key_dim": "linear_key_head_dim",
    "value_dim": "linear_value_head_dim",
    "conv_tokens": "linear_conv_kernel_dim",
}

#: Elements of all heads lie below it, as those of matrices do elsewhere.
_MOST = 1 << 31


def read_linear(full: Mapping[str, Any], family: Family, pattern: tuple[Attention, ...]) -> LinearSizes | None:
    """What a config.json says of linear attention; None where no layer has it.

    Args:
        full: with the family's defaults. pattern: of `linear_pattern`.
    Raises:
        ValueError: a size is missing, of the wrong kind or out of range.
    """
    if GatedDeltaNet() not in pattern:
        return None
    for key in _KEYS.values():
        if integer(full, key) >= _MOST:
            raise ValueError(f"{key} is {full[key]}; it must be below {_MOST}")
    return LinearSizes(**{name: integer(full, key) for name, key in _KEYS.items()})


def linear_pattern(raw: Mapping[str, Any], family: Family) -> tuple[Attention, ...]:
    """Kinds of attention by layer, of a family that has linear attention.

    Raises:
        ValueError: a value is missing, of the wrong kind or out of range, or no layer attends, as the catalog has it too.
    """
    layers = layers_with_linear_attention(raw, family)
    if all(layers):
        raise ValueError(f"all {len(layers)} layers have linear attention; one at least must attend to a cache")
    return tuple(GatedDeltaNet() if linear else GroupedAttention() for linear in layers)


def written_linear(config: DecoderConfig, family: Family) -> dict[str, Any]:
    """Keys of config.json that say the sizes and layers of linear attention; none in families without."""
    if not family.linear:
        return {}
    names = {True: "linear_attention", False: "full_attention"}
    kinds = [names[isinstance(config.blocks(layer)[0], GatedDeltaNet)] for layer in range(config.num_layers)]
    sizes = {} if config.linear is None else {key: getattr(config.linear, name) for name, key in _KEYS.items()}
    return sizes | {"layer_types": kinds}
