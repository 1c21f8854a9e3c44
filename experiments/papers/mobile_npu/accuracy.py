"""Tables 1, 4 and 5 in our setting: what the paper's accuracies say of each other, and the same of the embedded networks.

Its networks, texts and tasks are others, so no cell is compared with a cell: only which version is better, and by how much of
what quantization costs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from experiments.papers.mobile_npu.printed import printed
from experiments.papers.mobile_npu.quality import FLOAT, Settings, Variant, measure
from jaxspec.runs.progress import Reporter

__all__ = ["MEASURED", "OURS", "accuracies", "accuracy_statements"]

#: How much is measured: half a minute on two idle cores.
MEASURED = Settings(windows=24, tokens=256, problems=200)

#: Versions of the three tables: groups, channels, tile groups, and these with float16 attention. FFN down has 8 bits (7.1), but
#: in Table 1, whose two implementations have 4 bits everywhere.
_GROUPS, _CHANNELS = Variant("q4_0"), Variant("int4-channel")
_COMMON, _TILES = Variant("q4_0-down8"), Variant("tile-q4_0-down8")
_HALF = Variant(_TILES.scheme, fp16_attention=True)
OURS = (FLOAT, _GROUPS, _CHANNELS, _COMMON, _TILES, _HALF)

_TABLE1, _TABLE4, _TABLE5 = "table1_quantization_accuracy", "table4_tile_group_accuracy", "table5_attention_accuracy"
_GROUP_METHOD, _CHANNEL_METHOD = "AutoAWQ (W4A16)", "QNN (W4A16)"


@functools.cache
def accuracies() -> Mapping[str, Any]:
    """Scores of the embedded network on text and of the arithmetic network on its task, measured here."""
    return measure("embedded", MEASURED, Reporter(), OURS)


def accuracy_statements(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the tables say, printed and measured.

    Args:
        found: of `accuracies`.
    """
    rows = {row["variant"]: row for row in found["variants"]}
    pairs = {(row["variant"], row["beside"]): row for row in found["comparisons"]}
    bits = lambda variant: rows[variant.name]["bits_per_byte"]["value"]
    channels, tiles, half = (
        pairs[one.name, other.name] for one, other in ((_CHANNELS, _GROUPS), (_TILES, _COMMON), (_HALF, _TILES))
    )
    text, task = channels["bits_per_byte_relative"], channels["arithmetic_sampled_difference"]
    lost = bits(_COMMON) / bits(FLOAT) - 1.0
    printed_lost = _log_ratio("Common group", "F16")
    moved, printed_moved = tiles["bits_per_byte_relative"], _log_ratio("Tile group", "Common group")
    attention = half["bits_per_byte_relative"]
    order = [bits(variant) for variant in (FLOAT, _COMMON, _CHANNELS)]
    return [
        _statement(
            "Table 1",
            "channels in 4 bits need more bits for text than groups",
            f"{_log_ratio(_CHANNEL_METHOD, _GROUP_METHOD, _TABLE1):+.1%} nats of a word",
            f"{_span(text)} bits of a byte",
            text["low"] > 0.0,
        ),
        _statement(
            "Table 1",
            "and solve less",
            "; ".join(
                f"{task_name} {printed(_TABLE1, method=_CHANNEL_METHOD, benchmark=task_name):g} % for "
                f"{printed(_TABLE1, method=_GROUP_METHOD, benchmark=task_name):g} %"
                for task_name in ("MATH500", "GSM8K")
            ),
            f"arithmetic {_span(task)}",
            task["high"] < 0.0,
        ),
        _statement(
            "Table 4",
            "tile groups move text by less than quantization does",
            f"{printed_moved:+.2%} of {printed_lost:+.2%}",
            f"{_span(moved)} of {lost:+.2%}",
            max(abs(moved["low"]), abs(moved["high"])) < lost,
        ),
        _statement(
            "Tables 1 and 4",
            "float is best on text, groups are next, channels last",
            "by perplexity",
            ", ".join(f"{one:.4f}" for one in order),
            order == sorted(order),
        ),
        _statement(
            "Table 5",
            "attention in float16 with a table leaves text as it is (within 0.1 %)",
            f"{_log_ratio('Our LUT16 FA', 'F32 Attention', _TABLE5):+.3%}",
            _span(attention, 3),
            max(abs(attention["low"]), abs(attention["high"])) <= 1e-3,
        ),
    ]


def _log_ratio(one: str, other: str, table: str = _TABLE4) -> float:
    """Relative difference of the logarithms of two printed perplexities: of the bits that text takes."""
    of = lambda method: math.log(printed(table, method=method, benchmark="Wiki PPL"))
    return of(one) / of(other) - 1.0


def _span(found: Mapping[str, float], digits: int = 2) -> str:
    return f"{found['value']:+.{digits}%} ({found['low']:+.{digits}%} to {found['high']:+.{digits}%})"


def _statement(where: str, says: str, theirs: str, ours: str, holds: bool) -> dict[str, Any]:
    return {"where": where, "says": says, "printed": theirs, "ours": ours, "holds": bool(holds), "status": "measured"}
