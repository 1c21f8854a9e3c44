"""Numbers beside the tables: statements of the text, generations, matrices, variants, and the bars."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.papers.mobile_npu import memory
from experiments.papers.mobile_npu.accuracy import accuracies, accuracy_statements
from experiments.papers.mobile_npu.calibration import fit, fitted_numbers
from experiments.papers.mobile_npu.kernels import gemv_seconds, matrices
from experiments.papers.mobile_npu.printed import CONTEXT, DATA, PAPER, printed
from experiments.papers.mobile_npu.statements import statements
from experiments.papers.mobile_npu.versions import GENERATIONS, MODELS, calibrated_device
from experiments.reproduce.paper import Detail, Outcome
from experiments.reproduce.statements import missed_statements, statements_detail
from hwmodels import catalog

__all__ = ["DETAILS", "missed_bars"]

#: Largest relative errors of range ends and of the session's memory.
_ENDS_BAR, _MEMORY_BAR = 0.15, 0.03


def _matrices() -> list[Mapping[str, Any]]:
    seconds = gemv_seconds(calibrated_device(fit()))
    return [
        one
        | {"microseconds": seconds["ours"][i] * 1e6}
        | {name: seconds[name][i] / seconds["ours"][i] for name in seconds if name != "ours"}
        for i, one in enumerate(matrices())
    ]


def _variants() -> list[Mapping[str, Any]]:
    """Ends under other readings: a scatter's printed extremes, and 8-bit codes that cost what their registers of weights do."""
    device = calibrated_device(fit())
    npu = device.matrix_unit
    table = npu.vector.exponential
    readings = {"the model": device}
    for end in ("min", "max"):
        packets = printed("hexagon_specs", f"latency_{end}", component="vgather")
        changed = npu.replace(vector=npu.vector.replace(exponential=table.replace(gather_packets=packets)))
        readings[f"a scatter of {packets:g} packets"] = dataclasses.replace(device, matrix_unit=changed)
    # Both widths then give four registers of weights in as many packets: one code counts as 4 bits whatever its width.
    flat = npu.replace(vector=npu.vector.replace(layout=npu.vector.layout.replace(metadata_bits=5.0)))
    readings["8-bit weights cost what 4-bit ones do"] = dataclasses.replace(device, matrix_unit=flat)
    found = []
    for name, changed in readings.items():
        seconds = gemv_seconds(changed)
        ratios = {version: seconds[version] / seconds["ours"] for version in ("baseline", "HMX layout")}
        slower = float(np.mean(seconds["ours"] / seconds["no dequantization"])) - 1.0
        ends = {f"{version} {end.__name__}": float(end(r)) for version, r in ratios.items() for end in (np.min, np.max)}
        found.append({"reading": name, "slower_percent": 100.0 * slower} | ends)
    return found


def _generations(outcome: Outcome) -> list[Mapping[str, Any]]:
    devices = {cell["npu_arch"]: cell for cell in _table3()}
    found = []
    for generation, entry in GENERATIONS.items():
        device = catalog.device(entry)
        for model in MODELS:
            step = outcome.solved[generation, model]
            found.append(
                devices[generation]
                | {
                    "model": model,
                    "fits": "yes" if memory.fits(model, device, CONTEXT) else "no",
                    "session_mib": memory.session_mib(model, CONTEXT),
                    "one_tokens_per_s": step.tokens_per_s()[0, 0],
                    "sixteen_tokens_per_s": step.tokens_per_s()[0, -1],
                    "head_percent": 100.0 * step.head_share[0, -1],
                    "power_w": step.power_w()[0, -1],
                    "joules_per_token": step.energy_j[0, -1] / 16.0,
                }
            )
    return found


def _table3() -> list[dict[str, Any]]:
    """Table 3: phone, chip, NPU."""
    with (DATA / f"{PAPER}_table3_devices.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = dict.fromkeys(row["device"] for row in rows)
    return [{"device": name} | {r["metric"]: r["value"] for r in rows if r["device"] == name} for name in names]


DETAILS = (
    Detail(
        "fitted",
        "The four fitted numbers",
        lambda outcome: fitted_numbers(),
        {"number": "{name}", "value": "{value:.4g}"},
        lambda value: [{"name": name, "value": number} for name, number in value.items()],
    ),
    statements_detail(statements),
    Detail(
        "accuracy",
        "Tables 1, 4 and 5 in our setting: the embedded network on text, the arithmetic network on its task",
        lambda outcome: accuracy_statements(accuracies()),
        {
            "where": "{where}",
            "statement": "{says}",
            "printed": "{printed}",
            "ours": "{ours}",
            "holds": "{holds}",
            "status": "{status}",
        },
    ),
    Detail(
        "generations",
        "Table 3's phones, prompt of 512 tokens: tokens/s of one sample and of 16; share of the logits, power, energy at 16",
        _generations,
        {
            "NPU": "{npu_arch}",
            "phone": "{device}",
            "network": "{model}",
            "fits": "{fits}",
            "MiB": "{session_mib:.0f}",
            "1": "{one_tokens_per_s:.1f}",
            "16": "{sixteen_tokens_per_s:.0f}",
            "logits, %": "{head_percent:.0f}",
            "W": "{power_w:.2f}",
            "J per token": "{joules_per_token:.4f}",
        },
    ),
    Detail(
        "matrices",
        "Fig. 15 matrix by matrix: our time, and the other versions' times over it",
        lambda outcome: _matrices(),
        {
            "network": "{model}",
            "matrix": "{matrix}",
            "bits": "{weight_bits:g}",
            "us": "{microseconds:.0f}",
            "baseline": "{baseline:.2f}",
            "HMX layout": "{HMX layout:.2f}",
            "no dequantization": "{no dequantization:.3f}",
        },
    ),
    Detail(
        "variants",
        "Fig. 15 under other readings, the fitted number unchanged",
        lambda outcome: _variants(),
        {
            "reading": "{reading}",
            "slower, %": "{slower_percent:.0f}",
            "baseline, lowest": "{baseline min:.2f}",
            "highest": "{baseline max:.2f}",
            "HMX layout, lowest": "{HMX layout min:.2f}",
            "its highest": "{HMX layout max:.2f}",
        },
    ),
)


def missed_bars(outcome: Outcome) -> list[str]:
    """A line for each error beyond its bar, and for each statement that does not hold."""
    missed = [
        f"{row['table']} {row['conditions'].get('over', '')} {row['conditions'].get('end', '')}: "
        f"{row['model_value']:.3g} for {row['paper_value']:g}"
        for table in ("fig14", "fig15")
        for row in outcome.of(table)
        if row["relative_error"] > _ENDS_BAR
    ]
    missed += [
        f"session of {row['conditions']['model']}: {row['model_value']:.0f} MiB for {row['paper_value']:g}"
        for row in outcome.of("memory_power")
        if row["metric"] == "dmabuf_memory" and row["relative_error"] > _MEMORY_BAR
    ]
    return (
        missed
        + missed_statements(outcome)
        + [
            f"does not hold: {one['says']} ({one['where']}): {one['ours']}"
            for one in outcome.details.get("accuracy", ())
            if not one["holds"]
        ]
    )
