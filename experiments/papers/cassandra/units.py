"""The NPU of Table V as units and counts, and the number of decoders from the width of its scratchpad.

How many decoders: a unit has whole zero counters of 8 bits (Algorithm 1), so with codewords of 2.85 bits it delivers
counters * 8 / 2.85 values of two bytes per cycle. 1024 bytes per cycle are 8 cache blocks of 128 bytes; each unit is taken to
belong to one block's share, as it does in a GPU's memory partitions (V-B). Of all whole numbers of counters only 5 then gives
the printed 40: 64 values per share over 14.04 are 4.6, so 5 units in each of 8 shares. Without shares no whole number gives
40 (4 need 46 units, 5 need 37). The paper prints no throughput: the number of counters is fitted to the printed number of
decoders, and the shares are assumed. All that the two printed numbers say for themselves is 1024 / 40 = 25.6 bytes per unit.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from experiments.reproduce import paper as csv
from hwmodels.decoders.decoder import Decoder, decoded_bytes_per_cycle, decoders_needed, unary_decoder
from hwmodels.decoders.encoder import Encoder
from hwmodels.memory.tiers import CACHE_BLOCK_BYTES
from hwmodels.numerics.units import TERA

__all__ = [
    "BFLOAT16_MACS",
    "CLOCK_HZ",
    "COUNTERS",
    "MEAN_CODE_BITS",
    "MM2",
    "NPU",
    "counters_scan",
    "decoder_count",
    "npu_decoder",
    "npu_encoder",
    "printed",
    "printed_value",
]

DATA = Path(__file__).parent / "data"

MM2 = 1e-6

#: The paper's own accelerator, as its tables name it.
NPU = "systolic array NPU"


def printed(name: str) -> tuple[csv.PrintedCell, ...]:
    """Numbers of a table."""
    return csv.printed_cells(DATA / f"cassandra_{name}.csv")


def printed_value(name: str, metric: str = "", **conditions: str) -> float:
    """The one number of a table that meets the conditions."""
    return csv.printed_value(DATA / f"cassandra_{name}.csv", metric, **conditions)


def _npu(metric: str) -> float:
    return printed_value("hardware_specs", metric, device=NPU)


#: assumed: the paper prints no clock. 32,000 multiply-adds per cycle at 1 GHz are 64 TFLOPS.
CLOCK_HZ = 1e9

#: Multiply-adds per cycle at that clock: Cassandra, VI-A, 64 TFLOPS.
BFLOAT16_MACS = _npu("peak_throughput") * TERA / 2 / CLOCK_HZ

#: Mean length of a unary-coded exponent: Cassandra, IV-B and Fig. 6(b).
MEAN_CODE_BITS = printed_value("claims", claim_id="CAS017")

#: Bits of a zero counter's chunk: Cassandra, Algorithm 1.
CHUNK_BITS = int(printed_value("algorithm_config", "chunk_width"))

#: Fitted: zero counters of a unit, the whole number that gives the printed number of decoders.
COUNTERS = 5


def _unit(counters: int) -> Decoder:
    return unary_decoder(counters=counters, chunk_bits=CHUNK_BITS, frequency_hz=CLOCK_HZ, place="dma")


def decoder_count(counters: int = COUNTERS) -> int:
    """Decoders that keep up with the scratchpad, a whole number in each share of a cache block."""
    demand = _npu("scratchpad_bandwidth_total")
    return int(decoders_needed(_unit(counters), demand, MEAN_CODE_BITS, partitions=int(demand / CACHE_BLOCK_BYTES)))


def counters_scan(most: int = 16) -> list[dict[str, Any]]:
    """For each number of counters: a unit's rate, and decoders needed with and without shares."""
    demand = _npu("scratchpad_bandwidth_total")
    return [
        {
            "counters": counters,
            "decoded_bytes_per_cycle": float(decoded_bytes_per_cycle(_unit(counters), MEAN_CODE_BITS)),
            "decoders_in_shares": decoder_count(counters),
            "decoders_together": decoders_needed(_unit(counters), demand, MEAN_CODE_BITS),
        }
        for counters in range(1, most + 1)
    ]


def npu_decoder() -> Decoder:
    """All decoders of the NPU; a unit's area and power are the printed totals over the printed number."""
    number = _npu("num_cassandra_decoders")
    return dataclasses.replace(
        _unit(COUNTERS),
        count=float(decoder_count()),
        area_m2=printed_value("table5_area_power", "area", module="Cassandra Decoder") * MM2 / number,
        power_w=printed_value("table5_area_power", "power", module="Cassandra Decoder") / number,
    )


def npu_encoder() -> Encoder:
    """The NPU's encoder as one unit; the paper prints neither how many there are nor their rate."""
    return Encoder(
        frequency_hz=CLOCK_HZ,
        values_per_cycle=1.0,  # assumed: the least that hardware can do
        area_m2=printed_value("table5_area_power", "area", module="Cassandra Encoder") * MM2,
        power_w=printed_value("table5_area_power", "power", module="Cassandra Encoder"),
    )
