"""The tables of `jaxspec serve`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hwmodels.numerics.units import MILLI
from jaxspec.report.columns import Column
from jaxspec.report.formatting import fixed, three_digits
from jaxspec.report.notes import note_lines
from jaxspec.report.shown import Shown
from jaxspec.report.terminal import Table
from jaxspec.runs.directory import RunDirectory
from jaxspec.studies.known_acceptance import acceptance_line
from jaxspec.studies.serve.loads import DECODING
from jaxspec.studies.serve.result import Crossing, LoadRow, ServeResult

__all__ = ["CALLED", "answer", "serving_tables", "shown"]

#: Way to decode -> what it is called.
CALLED = {"autoregressive": "no draft", "fixed": "fixed draft", "by_batch": "draft by batch"}


def _ms(value: float) -> str:
    return three_digits(value / MILLI)


def _latency(name: str, title: str, heading: str, meaning: str, write: Callable[[float], str]) -> Column[LoadRow]:
    """A column of a field with its interval."""
    return Column[LoadRow](
        title,
        heading,
        meaning,
        lambda row: getattr(row, name),
        write,
        interval=lambda row: row.intervals and getattr(row.intervals, name),
    )


_COLUMNS = (
    Column[LoadRow](
        "requests/s", "requests/s", "that arrive", lambda row: row.rate_per_s, lambda value: f"{value:.4g}"
    ),
    _latency("tokens_per_s", "tokens/s", "tokens/s", "generated", three_digits),
    Column[LoadRow]("batch", "batch", "requests in the engine", lambda row: row.mean_batch, lambda x: fixed(x, 1)),
    Column[LoadRow]("busy", "busy", "share of the time", lambda row: row.utilisation, three_digits),
    _latency("ttft_p50_s", "TTFT p50", "TTFT, ms\np50", "to the first token", _ms),
    _latency("ttft_p99_s", "TTFT p99", "\np99", "to the first token", _ms),
    _latency("tpot_p50_s", "TPOT p50", "TPOT, ms\np50", "per further token", _ms),
    _latency("tpot_p99_s", "TPOT p99", "\np99", "per further token", _ms),
    _latency("request_p50_s", "request p50", "request, s\np50", "in all", three_digits),
    _latency("request_p99_s", "request p99", "\np99", "in all", three_digits),
)


def answer(crossing: Crossing, rows: Sequence[LoadRow] = ()) -> str:
    """Where a draft pays, in a sentence; and by how much, where it does at single rates.

    Args:
        rows: of the result; none: by how much is left out.
    """
    called, pays = CALLED[crossing.decoding], crossing.pays_at.known
    if not pays:
        return f"{called}: pays at none of these rates"
    if (rate := crossing.rate_per_s.number) is not None:
        return f"{called}: shortens the median request up to {rate:.3g} requests/s, and lengthens it beyond"
    most = max((_shorter_by(rows, crossing.decoding, rate) for rate in pays if rows), default=None)
    rates = ", ".join(f"{rate:.3g}" for rate in pays)
    words = "" if most is None else f", by {three_digits(100.0 * most)} % at most"
    return f"{called}: of these rates, shortens the median request at {rates} requests/s{words}"


def _shorter_by(rows: Sequence[LoadRow], decoding: str, rate: float) -> float:
    """Share of a median request's time that a draft saves at a rate."""
    took = {row.decoding: row.request_p50_s.known for row in rows if row.rate_per_s.known == rate}
    return 1.0 - took[decoding] / took[DECODING[0]]


def serving_tables(results: Sequence[ServeResult]) -> list[Table]:
    """For each device a row for every way to decode at every rate."""
    return [_loads(result) for result in results]


def _loads(result: ServeResult) -> Table:
    load = result.workload
    table = Table(
        title=f"{result.architecture} on {result.device}, "
        + (f"{result.release}; " if result.release else "")
        + f"draft: {result.draft}",
        caption=f"{load.requests.value} requests of {load.prompt_tokens.known:.0f} + {load.output_tokens.known:.0f} tokens "
        f"on average, at most {load.max_batch.value} at once and {load.chunk_tokens.value} prompt tokens in a step, room for "
        f"{load.capacity_tokens.known:,.0f} tokens{_states(result)}; fixed draft: {result.draft_length.value} tokens; "
        f"by batch: {_lengths(result)} (rates and lengths: input; acceptance: {result.acceptance.status}; the rest: predicted)"
        + (f"\nin brackets: {result.interval_statement}" if result.interval_statement else ""),
    )
    table.add_column("decoding")
    for column in _COLUMNS:
        table.add_column(column.heading, justify="right")
    for row in result.rows:
        table.add_row(CALLED[row.decoding], *(column.text(row) for column in _COLUMNS))
    return table


def _states(result: ServeResult) -> str:
    """How much of the room each request's states take, in words; empty where there are none."""
    states = result.workload.sequence_tokens.number
    return f", of which a request's states take {states:,.0f}" if states else ""


def _lengths(result: ServeResult) -> str:
    """Lengths by batch in words, as in "4 up to batch 12, then 2 up to 30, then 0"."""
    lengths = result.lengths_by_batch.known
    ends = [
        place + 1 for place in range(len(lengths)) if place + 1 == len(lengths) or lengths[place] != lengths[place + 1]
    ]
    said = [f"{lengths[end - 1]} up to batch {end}" for end in ends[:-1]] + [str(lengths[-1])]
    return ", then ".join(said if len(said) <= 5 else [*said[:4], f"... {said[-1]}"])


def shown(found: tuple[Sequence[ServeResult], RunDirectory]) -> Shown:
    """Tables of what was served for the terminal, from what `serve` returned."""
    results, directory = found
    lines = [f"{result.device}: {answer(crossing, result.rows)}" for result in results for crossing in result.crossings]
    return Shown(
        [result.plain() for result in results],
        serving_tables(results),
        [*lines, *note_lines(results)],
        f"report: {directory.path / 'report.html'}",
        first=list(dict.fromkeys(acceptance_line(result.acceptance, result.acceptance_source) for result in results)),
    )
