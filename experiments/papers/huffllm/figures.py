"""Figures of the reproduction: compression, savings, and what the hardware makes of them. Matplotlib figures, not yet saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from hwmodels.numerics.units import GIGA, TERA

__all__ = ["cam_figure", "compression_figure", "roofline_figure", "savings_figure"]

Rows = Sequence[Mapping[str, Any]]

_COLOURS = {"systolic WS": "tab:blue", "systolic OS": "tab:green", "simba WS": "tab:orange"}


def _label(row: Mapping[str, Any]) -> str:
    """A row of the compression tables in a few words."""
    conditions = row["conditions"]
    names = ("split", "field_name") if row["table"] == "entropy_splits" else ("model", "number_format")
    return ", ".join(conditions[name] for name in names)


def _architecture(row: Mapping[str, Any]) -> str:
    conditions = row["conditions"]
    return f"{conditions['architecture'].removesuffix('_array')} {conditions['dataflow']}"


def compression_figure(all_rows: Rows) -> Figure:
    """Bars of printed and modelled values: entropies of the fields, bits per weight of the models."""
    panels = (
        ("entropy_splits", "entropy", "bits per field"),
        ("compression_ratios", "bits_per_param", "bits per weight"),
    )
    figure, axes = plt.subplots(1, 2, figsize=(13, 4.5), width_ratios=(2, 3), layout="constrained")
    for axis, (table, metric, label) in zip(axes, panels, strict=True):
        rows = [row for row in all_rows if (row["table"], row["metric"]) == (table, metric)]
        place = np.arange(len(rows))
        axis.bar(place - 0.2, [row["paper_value"] for row in rows], 0.4, label="printed", color="0.7")
        colours = ["tab:orange" if row["status"] == "calibrated" else "tab:blue" for row in rows]
        axis.bar(place + 0.2, [row["model_value"] for row in rows], 0.4, color=colours)
        # Empty bars, for the legend only.
        for name, colour in (("calibrated", "tab:orange"), ("predicted", "tab:blue")):
            if any(row["status"] == name for row in rows):
                axis.bar(0, 0, 0, label=f"model, {name}", color=colour)
        axis.set_xticks(place, [_label(row) for row in rows], rotation=60, ha="right", fontsize=8)
        axis.set_ylabel(label)
        axis.set_ylim(0, 1.15 * max(row["paper_value"] for row in rows))
        axis.legend(ncols=3, fontsize=8)
    return figure


def savings_figure(all_rows: Rows) -> Figure:
    """Modelled over printed savings of time and of energy; hollow: fitted to, crosses: cells in doubt."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    panels = (("latency_saving", "time saved (%)"), ("energy_saving", "energy saved (%)"))
    for axis, (metric, label) in zip(axes, panels, strict=True):
        rows = [row for row in all_rows if row["metric"] == metric]
        for architecture, colour in _COLOURS.items():
            for kind, style in (
                ("predicted", {"marker": "o"}),
                ("calibrated", {"marker": "o", "facecolors": "none"}),
                ("in doubt", {"marker": "x"}),
            ):
                points = [
                    (row["paper_value"], row["model_value"])
                    for row in rows
                    if _architecture(row) == architecture and ("in doubt" if row["doubt"] else row["status"]) == kind
                ]
                if points:
                    x, y = np.array(points).T
                    style = style | ({"edgecolors": colour} if kind == "calibrated" else {"color": colour})
                    axis.scatter(x, y, s=22, label=f"{architecture}, {kind}", **style)
        ends = [0, 35]
        axis.plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
        axis.set(xlabel=f"printed: {label}", ylabel=f"model: {label}", xlim=ends, ylim=ends, aspect="equal")
        axis.legend(fontsize=7, loc="upper left")
    return figure


def roofline_figure(hardware: Mapping[str, Any]) -> Figure:
    """Roofline at 128 and 256 GB/s with its operating points; savings over bandwidth; energy at 256 GB/s by part."""
    figure, (roof, saved, parts) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    intensity = np.geomspace(4, 512, 200)
    for bandwidth, style in ((128, "-"), (256, "--")):
        rate = np.minimum(intensity * bandwidth * GIGA, hardware["array_macs_per_s"]) / TERA
        roof.plot(intensity, rate, style, color="0.4", label=f"roof at {bandwidth} GB/s")
    for (name, point), marker in zip(hardware["operating_points"].items(), "osDv", strict=True):
        colour = "tab:green" if name.endswith("compressed") else "tab:red"
        roof.plot(point["macs_per_byte"], point["macs_per_s"] / TERA, marker, color=colour, label=name)
    roof.set(xscale="log", yscale="log", xlabel="multiply-adds per byte", ylabel="tera multiply-adds per second")
    roof.legend(fontsize=7)

    points = hardware["roofline"]
    for key, label in (("latency_saving", "time"), ("energy_saving", "energy")):
        saved.plot(points["bandwidth_gbps"], points[key], "o-", label=label)
    saved.axvline(256, color="0.7", linewidth=0.8)
    saved.set(xlabel="DRAM bandwidth (GB/s)", ylabel="saved (%)", xscale="log", ylim=(0, None))
    saved.set_xticks(points["bandwidth_gbps"], [str(b) for b in points["bandwidth_gbps"]])
    saved.minorticks_off()
    saved.legend(fontsize=8)

    energies = hardware["energy_at_256"]
    total = sum(energies["16 bits"].values())
    bottom = np.zeros(len(energies))
    for part in energies["16 bits"]:
        height = np.array([run[part] / total * 100 for run in energies.values()])
        parts.bar(list(energies), height, bottom=bottom, label=part)
        bottom += height
    parts.set_ylabel("energy at 256 GB/s (% of 16 bits)")
    parts.legend(fontsize=8)
    return figure


def cam_figure(hardware: Mapping[str, Any]) -> Figure:
    """Area of single-cycle decoders of 15 bits by the width of their symbols."""
    figure, axis = plt.subplots(figsize=(5, 3.5), layout="constrained")
    growth = hardware["cam_percent"]
    axis.bar(list(growth), list(growth.values()))
    axis.axhline(6, color="0.5", linewidth=0.8, linestyle="--", label="printed at N = 5: about 6 %")
    axis.set(xlabel="bits per symbol N", ylabel="area (% of 128 elements)")
    axis.legend(fontsize=8)
    return figure
