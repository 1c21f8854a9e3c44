"""What `jaxspec tune` shows: sentences, tables, figures and the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxspec.models.config import MATRIX_KINDS
from jaxspec.report.columns import NO_STATUS, Cell, Grid, statements
from jaxspec.report.configurations import (
    LARGEST_GAP,
    PAGE_COLUMNS,
    gap_in_standard_errors,
    headline,
    operator_time_figure,
    ratio,
    roofline_figure,
    tables,
    tokens_figure,
    verdict,
)
from jaxspec.report.figure_style import (
    INK,
    colour_of,
    legend_below,
    marker_of,
    new_axes,
    new_figure,
    styled,
    text_colour_on,
)
from jaxspec.report.formatting import (
    CONFIGURATIONS,
    NOT_KNOWN,
    configurations,
    fixed,
    in_order,
    knobs_in_words,
    provenance,
    times,
)
from jaxspec.report.page import (
    Drawings,
    Page,
    Section,
    lossless_proof,
    network_section,
    network_settings,
    write_page,
)
from jaxspec.report.stopwatch import stopwatch_figure, stopwatch_tables
from jaxspec.report.terminal import Shown, note_lines, shown_run
from jaxspec.results import predicted
from jaxspec.results.network_results import Configuration
from jaxspec.results.records import finite
from jaxspec.runs.directory import RunDirectory, read_metrics
from jaxspec.settings.schemes import all_knobs
from jaxspec.studies.sweep.pareto import is_pareto
from jaxspec.studies.tune.result import GridPoint, OnCalibration, TuneResult


def by_j(result: TuneResult) -> GridPoint | None:
    """The grid point with the largest J; None where the scheme has none."""
    return _best(result, lambda point: point.relative_j.number)


def disagreement_in_words(result: TuneResult) -> str:
    """A sentence on both choices; empty where either is not known."""
    chosen, fastest = by_j(result), _best(result, lambda point: point.speedup_vs_bf16_ar.number)
    if chosen is None or fastest is None or chosen.speedup_vs_bf16_ar.number is None:
        return ""
    if chosen is fastest:
        return f"objective J (Cassandra, Eq. 2) chooses the grid point that is predicted to be the fastest: {_knobs(chosen)}"
    return (
        f"objective J (Cassandra, Eq. 2) chooses another grid point than the predicted speedup: {_knobs(chosen)}, predicted "
        f"{times(chosen.speedup_vs_bf16_ar.number)}, instead of {_knobs(fastest)}, {times(fastest.speedup_vs_bf16_ar.number)}; "
        "it knows no device, no draft length and no bits of bitmap and exponents"
    )


def _best(result: TuneResult, number: Callable[[GridPoint], float | None]) -> GridPoint | None:
    """The first point with the largest number."""
    known = [point for point in result.grid if number(point) is not None]
    return max(known, key=lambda point: number(point) or 0.0, default=None)


def _knobs(point: GridPoint) -> str:
    """The point's knobs as text."""
    return ", ".join(f"{name} {fixed(value.number, 1).removesuffix('.0')}" for name, value in point.knobs.items())


#: Configuration that is compared with the others, and the one that it is compared with in the terminal.
_TUNED, _OTHER = "tuned", "grid"


def with_calibration(result: TuneResult, speedups: Mapping[str, float]) -> TuneResult:
    """A result with what its configurations reach on calibration text.

    Args:
        speedups: there, by configuration, over 16-bit autoregressive decoding.
    """
    held_out = {name: result.configurations[name].speedup_vs_bf16_ar.known for name in speedups}
    ratio = {name: speedups[_TUNED] / speedup for name, speedup in speedups.items()}
    on_calibration = {
        name: OnCalibration(
            speedup_vs_bf16_ar=predicted(speedup),
            gap=predicted(speedup / held_out[name] - 1.0),
            tuned_vs_this=predicted(ratio[name]),
            optimism=predicted(ratio[name] * held_out[name] / held_out[_TUNED] - 1.0),
        )
        for name, speedup in speedups.items()
    }
    return dataclasses.replace(result, on_calibration=on_calibration)


def optimism_in_words(result: TuneResult) -> str:
    """A sentence on the tuned draft and the best grid point; empty where one is not known."""
    tuned, other = (result.on_calibration.get(name, OnCalibration()) for name in (_TUNED, _OTHER))
    promised, optimism, gap = other.tuned_vs_this.number, other.optimism.number, tuned.gap.number
    if promised is None or optimism is None or gap is None:
        return ""
    return (
        f"on the calibration text that selected it, the tuned draft is {times(promised)} as fast as the best grid point, "
        f"{_more(optimism)} than on held-out prompts (its speedup over 16-bit AR there: {_more(gap)})"
    )


def promises(result: TuneResult) -> list[tuple[str, str, str]]:
    """Each other configuration, the tuned one's speed over it on calibration text, and a remark."""
    return [
        (name, times(here.tuned_vs_this.number), f"{_more(here.optimism.number)} than on held-out prompts")
        for name in in_order(result.on_calibration, CONFIGURATIONS)
        if name != _TUNED and (here := result.on_calibration[name]).optimism.number is not None
    ]


def _more(share: float) -> str:
    return f"{abs(100 * share):.1f} % {'more' if share >= 0 else 'less'}"


@styled
def acceptance_figure(result: TuneResult) -> Figure | None:
    """Acceptance (alpha_token) against the draft's bits per weight: all grid points, their front, the configurations."""
    chosen = {}
    for name, configuration in configurations(result).items():
        bits, alpha = configuration.bits_per_weight.number, configuration.acceptance.alpha_token.number
        if bits is not None and alpha is not None:
            chosen[name] = (bits, alpha)
    grid, speedups = [], []
    for point in result.grid:
        bits, alpha = point.bits_per_weight.number, point.alpha_token.number
        if bits is not None and alpha is not None:
            grid.append((bits, alpha))
            speedups.append(point.speedup_vs_bf16_ar.number)
    if not chosen and not grid:
        return None

    figure, axes = new_axes("Acceptance against footprint of the draft", provenance(result), height_inches=5.0)
    if grid:
        bits, alphas = np.array(grid).T
        front = sorted(np.array(grid)[is_pareto(bits, -alphas)].tolist())
        axes.step(*zip(*front), where="post", color=INK, linewidth=1.2, zorder=1, label="Pareto front of the grid")
        coloured = {"c": speedups, "cmap": "cividis"} if None not in speedups else {"color": INK}
        circle = {"s": 30, "linewidths": 0.5, "edgecolors": INK, "zorder": 2}
        points = axes.scatter(*zip(*grid), **coloured, **circle, label=f"all {len(grid)} grid points")
        if None not in speedups:
            bar = figure.colorbar(points, ax=axes, pad=0.01, aspect=30)
            bar.set_label("speedup vs bf16 AR of a grid point (predicted)")
            bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    ringed = by_j(result) or GridPoint()
    bits, alpha = ringed.bits_per_weight.number, ringed.alpha_token.number
    if bits is not None and alpha is not None:
        ring = {"markersize": 17, "markerfacecolor": "none", "markeredgecolor": INK, "zorder": 2}
        axes.plot(bits, alpha, "o", label="grid point that objective J chooses", **ring)
    # Configurations may coincide: later ones are smaller, so that all show.
    for index, (name, (bits, alpha)) in enumerate(chosen.items()):
        label = f"{'best grid point' if name == 'grid' else name}: {bits:.2f} bits, {alpha:.3f}"
        filled = {
            "markersize": max(13.0 - 1.5 * index, 6.0),
            "markeredgecolor": INK,
            "zorder": 4 if name == "tuned" else 3,
        }
        axes.plot(bits, alpha, marker_of(name), markerfacecolor=colour_of(name), label=label, **filled)
    shown = configurations(result)
    statuses = sorted({shown[name].acceptance.alpha_token.status or NO_STATUS for name in chosen})
    axes.set_xlabel("weights read per draft step (bits per stored weight)")
    axes.set_ylabel(f"acceptance alpha_token (probability, {' or '.join(statuses) or 'measured'})")
    axes.margins(0.06)
    legend_below(figure, axes, columns=3)
    return figure


#: Lines to beat, and where the stages end up once hardened.
_HARD = {"default": ":", "j_grid": (0, (1, 3)), "grid": "--", "uniform": "-.", "tuned": (0, (6, 1))}


#: What an ascent's points are -> field of its metrics, marker and line.
_CURVES = {
    "soft draft, on the windows of a pass": ("speedup", "", "-"),
    "hard draft, on all windows seen": ("hard_speedup_seen", "o", ":"),
    "hard draft, on windows not seen": ("hard_speedup_unseen", "s", "--"),
}


@styled
def convergence_figure(result: TuneResult, metrics: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Predicted speedup after each pass: of the soft network, and of hard drafts on text that passes see and do not see.

    Args:
        metrics: lines of this and other devices with device, stage, step and speedups.
    """
    lines = [line for line in metrics if line.get("device") == result.device and finite(line.get("step")) is not None]
    stages = in_order({str(line["stage"]) for line in lines if line.get("stage") is not None}, CONFIGURATIONS)
    if not stages:
        return None
    figure, axes = new_axes("Tuning, pass by pass", provenance(result), height_inches=4.9)
    for stage in stages:
        for words, (field, marker, dashes) in _CURVES.items():
            points = [(line["step"], line.get(field)) for line in lines if line.get("stage") == stage]
            known = sorted((step, value) for step, value in points if finite(value) is not None)
            if known:
                style = {"color": colour_of(stage), "linewidth": 1.8, "marker": marker, "linestyle": dashes}
                axes.plot(*zip(*known), **style, label=f"{stage}: {words}")
    for name, dashes in _HARD.items():
        speedup = result.configurations.get(name, Configuration()).speedup_vs_bf16_ar.number
        if speedup is not None:
            label = f"{name}, held out: {speedup:.2f}x"
            axes.axhline(speedup, color=colour_of(name), linestyle=dashes, linewidth=1.2, label=label)
    axes.set(xlabel="pass over calibration text", ylabel="speedup vs bf16 AR (x, predicted)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axes, columns=2)
    return figure


#: The columns of KV and of the LM head stand apart by this share of a cell.
_GAP = 0.35


#: Panel -> knob of weights, of KV and of the LM head, factor to the unit shown, label.
_PANELS = (
    ("weight_prune", "kv_prune", "head_prune", 100.0, "pruned (% of the values)"),
    ("weight_cut_bits", "kv_cut_bits", "head_cut_bits", 1.0, "cut (low mantissa bits)"),
)


@styled
def knobs_figure(result: TuneResult, configuration: str = "tuned") -> Figure | None:
    """Two heat maps, layers down and matrix kinds across, with KV and the LM head at the right: the share pruned and the
    bits cut."""
    knobs = result.configurations.get(configuration, Configuration()).knobs.value or {}
    layers = _number_of_layers(knobs)
    if not layers:
        return None
    length = finite(knobs.get("draft_length"))
    title = f"Knobs of the {configuration} draft"
    if length is not None:
        title += f", draft length {length:.0f}"
    figure = new_figure(title, provenance(result), height_inches=1.45 + 0.32 * max(layers, 2))
    for axes, (weights, kv, head, factor, label) in zip(figure.subplots(1, 2), _PANELS):
        _draw_panel(axes, knobs, weights, kv, head, factor=factor, label=label, layers=layers)
    return figure


def _number_of_layers(knobs: Mapping[str, Any]) -> int:
    """How many layers the knobs have; 0 where they are absent or not by layer."""
    lengths = set()
    for weights, kv, *_ in _PANELS:
        by_kind = knobs.get(weights)
        lists = [*by_kind.values()] if isinstance(by_kind, Mapping) else []
        lists += [knobs[kv]] if knobs.get(kv) is not None else []
        lengths |= {len(values) if isinstance(values, Sequence) else 0 for values in lists}
    return lengths.pop() if len(lengths) == 1 else 0


def _draw_panel(
    axes: Axes, knobs: Mapping[str, Any], weights: str, kv: str, head: str, *, factor: float, label: str, layers: int
) -> None:
    by_kind = knobs.get(weights) or {}
    columns: list[tuple[str, float, Sequence]] = [
        (kind, index, by_kind[kind]) for index, kind in enumerate(in_order(by_kind, MATRIX_KINDS))
    ]
    if knobs.get(kv) is not None:
        columns.append(("KV", len(columns) + _GAP, knobs[kv]))
    if knobs.get(head) is not None:  # one number, not one of each layer
        columns.append(("head", len(columns) + 2 * _GAP, [knobs[head]]))
    # The range of networks in bfloat16; of float16 more bits can be cut.
    most = max((float(v) for _, _, values in columns for v in map(finite, values) if v is not None), default=0.0)
    spec = all_knobs()[weights]
    low, high = factor * spec.low, factor * max(spec.high, most)
    colours, scale = colormaps["cividis"], Normalize(low, high)
    for _, x, values in columns:
        numbers = [finite(value) for value in values]
        edges = np.linspace(0, layers, len(numbers) + 1) - 0.5
        column = np.array([[np.nan if value is None else factor * value] for value in numbers])
        axes.pcolormesh(
            [x - 0.5, x + 0.5],
            edges,
            np.ma.masked_invalid(column),
            cmap=colours,
            norm=scale,
            edgecolors="face",
            linewidth=0.2,
        )
        for layer, value in enumerate(column[:, 0]):
            known = np.isfinite(value)
            colour = text_colour_on(colours(scale(value))) if known else INK
            label_of_cell = f"{value:.0f}" if known else NOT_KNOWN
            axes.text(
                x, edges[layer : layer + 2].mean(), label_of_cell, ha="center", va="center", fontsize=9, color=colour
            )
    axes.set_xticks([x for _, x, _ in columns], [name for name, _, _ in columns])
    axes.set_yticks(range(layers))
    axes.set_ylim(layers - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="matrix kind", ylabel="layer")
    bar = axes.figure.colorbar(
        ScalarMappable(scale, colours), ax=axes, location="bottom", pad=0.02, fraction=0.08, aspect=35
    )
    bar.set_label(label)
    bar.outline.set_visible(False)


def section(result: TuneResult, metrics: Sequence[Mapping[str, Any]] = ()) -> Section:
    """What the page shows of one device. Args: metrics: see `write_report`."""
    answer, shown = verdict(result), configurations(result)
    tuned = result.configurations.get("tuned", Configuration())
    compared = [ratio(result, name) for name in ("grid", "default")]
    by_j = disagreement_in_words(result)
    return network_section(
        result,
        headlines=[headline(result)],
        pays=answer.pays,
        tables=[Grid(shown, PAGE_COLUMNS, more=_more_rows(shown))],
        best=answer.best,
        choice=answer.choice,
        ratios=_ratios(result),
        figures=drawings(result, metrics),
        settings=[
            *network_settings(result, objective=result.objective),
            *([("objective J", by_j)] if by_j else []),
            *(("intervals", words) for words in statements(each.intervals for each in shown.values())),
        ],
        summary=[
            (times(tuned.speedup_vs_bf16_ar.number), ""),
            (times(tuned.speedup_vs_stored_ar.number), ""),
            *((times(each.value), each.interval) if each else (NOT_KNOWN, "") for each in compared),
        ],
    )


def _more_rows(shown: Mapping[str, Configuration]) -> list[tuple[str, str, list[Cell]]]:
    """The gap between the two counts, and what drafts leave out."""
    about = f"in standard errors of the count; beyond {LARGEST_GAP:.0f} it is a defect"
    rows = [("gap between the two", about, [_gap(configuration) for configuration in shown.values()])]
    for title, what in (("weights", "weight"), ("keys and values", "kv"), ("LM head", "head")):
        words = [knobs_in_words(configuration.knobs.value, what) for configuration in shown.values()]
        if any(each != NOT_KNOWN for each in words):  # a scheme may leave out nothing of a kind
            rows.append((title, "what the draft leaves out", list(map(Cell, words))))
    return rows


def _gap(configuration: Configuration) -> Cell:
    gap = gap_in_standard_errors(configuration)
    if gap is None:
        return Cell(NOT_KNOWN)
    status = configuration.tokens_per_cycle_gap_in_standard_errors.status or "measured"
    return Cell(fixed(gap, 1), status, alarm="defect" if gap > LARGEST_GAP else "")


def _ratios(result: TuneResult) -> list[tuple[str, str, str]]:
    ratios = [(name, ratio(result, name)) for name in configurations(result) if name != "tuned"]
    rows = [
        (f"tuned vs {name}", str(value), "" if value.clear else "no clear difference: the interval contains 1")
        for name, value in ratios
        if value is not None
    ]
    return rows + [(f"tuned vs {name}, on calibration text", value, remark) for name, value, remark in promises(result)]


#: Configuration -> what it is, in printed order.
_ROWS = {
    "default": "the scheme's default knobs",
    "j_grid": "the grid point that objective J chooses",
    "grid": "the best of a grid of drafts with the same knobs for all matrices",
    "uniform": "one set of knobs for all matrices, by gradient",
    "tuned": "knobs of its own for each matrix, by gradient",
}


def lines_by_device(results: Sequence[TuneResult], words: Callable[[TuneResult], str]) -> list[str]:
    """A line for each device about which there is something to say."""
    said = {result.device: words(result) for result in results}
    return [f"{device}: {line}" for device, line in said.items() if line]


def terminal_lines(results: Sequence[TuneResult], directory: Path) -> list[str]:
    """Lines below the tables.

    Args:
        results: one per device.
        directory: of the run.
    """
    rows = in_order({name for result in results for name in result.configurations}, _ROWS)
    return [
        *(headline(result) for result in results),
        *(f"{result.device}, measured: {lossless_proof(result.lossless).text}" for result in results),
        f"rows: {'; '.join(f'{name}: {_ROWS[name]}' for name in rows if name in _ROWS)}",
        *lines_by_device(results, optimism_in_words),
        *lines_by_device(results, disagreement_in_words),
        *note_lines(results),
        f"next: open {directory / 'report.html'}, which has figures, knobs and what the device's numbers rest on",
        *([f"next: {_exporting(results, directory)}"] if any(verdict(result).pays for result in results) else []),
    ]


def _exporting(results: Sequence[TuneResult], directory: Path) -> str:
    paying = next(result for result in results if verdict(result).pays)
    device = f" --device {paying.device}" if len(results) > 1 else ""
    best = verdict(paying).best
    configuration = "" if best == "tuned" else f" --configuration {best}"
    return f"jaxspec export {directory}{device}{configuration} -o draft writes the {best} draft for vLLM, SGLang or llama.cpp"


_PAGE = Page.read(__file__)


def write_report(results: Sequence[TuneResult], metrics: Sequence[Mapping[str, Any]], out_dir: str | Path) -> Path:
    """`write_page` of these results.

    Args:
        metrics: lines with device, stage, step, speedup and temperature, of all devices.
    """
    return write_page(_PAGE, [section(each, metrics) for each in results], out_dir)


def drawings(result: TuneResult, metrics: Sequence[Mapping[str, Any]]) -> Drawings:
    """The figures of one device by name, each as a function that draws it."""
    return {
        "acceptance": lambda: acceptance_figure(result),
        "knobs": lambda: knobs_figure(result),
        "convergence": lambda: convergence_figure(result, metrics),
        "tokens": lambda: tokens_figure(result),
        "roofline": lambda: roofline_figure(result),
        "operator_time": lambda: operator_time_figure(result),
        "stopwatch": lambda: stopwatch_figure(result),
    }


def figures(result: TuneResult, directory: Path | None) -> Drawings:
    """The report's figures of one device by name, each as a function that draws it."""
    steps = lambda: [] if directory is None else read_metrics(directory)
    return {**drawings(result, []), "convergence": lambda: convergence_figure(result, steps())}


def shown(run: tuple[Sequence[TuneResult], RunDirectory]) -> Shown:
    """Tables of a tuning run for the terminal, from what `tune` returned."""
    results, directory = run
    return shown_run(run, [*tables(results), *stopwatch_tables(results)], terminal_lines(results, directory.path))
