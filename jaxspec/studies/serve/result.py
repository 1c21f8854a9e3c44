"""Result of `jaxspec serve` for one device."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.results import UNKNOWN, Quantity, Record
from jaxspec.results.network_results import NO_ENDS, Ends, EngineUsed, PricedResult
from jaxspec.results.records import rest_table

__all__ = ["Crossing", "LoadEnds", "LoadRow", "ServeResult", "ServedWorkload"]

#: Ways to decode: without a draft, one of fixed length, and the best length for the batch at hand.
DECODING = ("autoregressive", "fixed", "by_batch")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedWorkload(Record):
    """What arrives, and the engine's limits.

    Attributes:
        capacity_tokens: whose keys and values fit beside the weights.
        sequence_tokens: as whose a sequence's states of linear attention take room of that.
    """

    requests: Quantity[int] = UNKNOWN
    prompt_tokens: Quantity[float] = UNKNOWN
    output_tokens: Quantity[float] = UNKNOWN
    max_batch: Quantity[int] = UNKNOWN
    chunk_tokens: Quantity[int] = UNKNOWN
    capacity_tokens: Quantity[float] = UNKNOWN
    sequence_tokens: Quantity[float] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadEnds(Record):
    """Intervals of a row's numbers: the same requests in an engine all of whose steps are fast, and slow."""

    tokens_per_s: Ends = NO_ENDS
    requests_per_s: Ends = NO_ENDS
    mean_batch: Ends = NO_ENDS
    utilisation: Ends = NO_ENDS
    ttft_p50_s: Ends = NO_ENDS
    ttft_p90_s: Ends = NO_ENDS
    ttft_p99_s: Ends = NO_ENDS
    tpot_p50_s: Ends = NO_ENDS
    tpot_p90_s: Ends = NO_ENDS
    tpot_p99_s: Ends = NO_ENDS
    request_p50_s: Ends = NO_ENDS
    request_p90_s: Ends = NO_ENDS
    request_p99_s: Ends = NO_ENDS


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadRow(Record):
    """One way to decode at one rate; latencies by percentile.

    Attributes:
        decoding: "autoregressive", "fixed" or "by_batch" draft length.
        rate_per_s: requests that arrive.
        requests_per_s: requests that are finished, from the first arrival to the end.
        mean_batch: requests in the engine while it works.
        ttft: from arrival to the first token. tpot: per further token. request: from arrival to the last.
        intervals: of these; None where nothing is known to err.
    """

    decoding: str = ""
    rate_per_s: Quantity[float] = UNKNOWN
    tokens_per_s: Quantity[float] = UNKNOWN
    requests_per_s: Quantity[float] = UNKNOWN
    mean_batch: Quantity[float] = UNKNOWN
    utilisation: Quantity[float] = UNKNOWN
    ttft_p50_s: Quantity[float] = UNKNOWN
    ttft_p90_s: Quantity[float] = UNKNOWN
    ttft_p99_s: Quantity[float] = UNKNOWN
    tpot_p50_s: Quantity[float] = UNKNOWN
    tpot_p90_s: Quantity[float] = UNKNOWN
    tpot_p99_s: Quantity[float] = UNKNOWN
    request_p50_s: Quantity[float] = UNKNOWN
    request_p90_s: Quantity[float] = UNKNOWN
    request_p99_s: Quantity[float] = UNKNOWN
    intervals: LoadEnds | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crossing(Record):
    """Where a draft stops paying.

    Attributes:
        decoding: "fixed" or "by_batch".
        pays_at: rates among those served at which the median request takes less time than without a draft.
        rate_per_s: from which on it does not; None: at no rate, at all, or again beyond one at which it does not.
    """

    decoding: str = ""
    pays_at: Quantity[list] = UNKNOWN
    rate_per_s: Quantity[float] = UNKNOWN


def _statuses(table: dict[str, Any]) -> dict[str, Any]:
    return rest_table({name: part for name, part in table.items() if name != "workload"}) | {
        name: part for name, part in table.items() if name == "workload"
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeResult(PricedResult):
    """Latencies and throughput on one device.

    Attributes:
        release: as of `PredictResult`.
        draft: what drafts, in words.
        acceptance_source: of which network, text and decoding the acceptance is, in words.
        lengths_by_batch: drafted tokens with 1, 2, ... sequences that generate, where the length follows the batch.
        rows: every way to decode at every rate.
        crossings: of each draft.
        engine: whose terms are in the times; None: kernels alone.
        placement: where things lie in a device with several memories; unknown on others.
        interval_statement: what intervals hold; None: there are none.
    """

    arrange_statuses = staticmethod(_statuses)

    scheme: Quantity[str] = UNKNOWN
    release: str | None = None
    draft: str | None = None
    draft_length: Quantity[int] = UNKNOWN
    acceptance: Quantity[list] = UNKNOWN
    acceptance_source: str | None = None
    workload: ServedWorkload = ServedWorkload()
    pays: Quantity[bool] = UNKNOWN
    lengths_by_batch: Quantity[list] = UNKNOWN
    rows: list[LoadRow] = dataclasses.field(default_factory=list)
    crossings: list[Crossing] = dataclasses.field(default_factory=list)
    engine: EngineUsed | None = None
    placement: Quantity[str] = UNKNOWN
    interval_statement: str | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    kernel_widths: dict[str, Any] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
