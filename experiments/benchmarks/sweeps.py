"""A sweep of ten million design points as a user runs it, from a new process to the finished file, figure and front.

    python -m experiments.benchmarks sweeps

Timed is everything: starting, compiling, evaluating, writing parts, joining them, the front of three results for each batch,
the figure, the result. Peak memory is that of the process. Axes: bandwidth, context, batch, width of the draft's weights,
acceptance; every point has its best of eight draft lengths.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.benchmarks.harness import row

__all__ = ["sweeps"]

#: Seconds and bytes that ten million points may take on two cores.
TARGET_S, TARGET_BYTES = 60.0, 2e9

#: Device -> what its matrix unit is.
DEVICES = {"rtx-4090-calibrated": "calibrated GPU", "rtx-4090": "roofline", "hexagon-v75": "matrix-vector NPU"}

#: 10 x 20 x 50 x 20 x 50 points.
SWEEP = """
device = ["{device}"]
max_draft_length = 8
[axes]
"workload.context_tokens" = {{ from = 512, to = 65536, points = 10, scale = "log" }}
"workload.batch" = {{ from = 1, to = 20, points = 20 }}
"device.memory.bandwidth_bytes_per_s" = {{ from = 2e11, to = 4e12, points = 50, scale = "log" }}
"acceptance.alpha_token" = {{ from = 0.5, to = 0.95, points = 20 }}
"footprint.draft_weight_bits" = {{ from = 3, to = 8, points = 50 }}
[pareto]
x = "device.memory.bandwidth_bytes_per_s"
y = "tokens_per_s"
z = "cycle_s"
facets = "workload.batch"
"""


def sweeps() -> list[dict[str, Any]]:
    """Seconds of a sweep of ten million points for each device, against the target."""
    rows = []
    for device, unit in DEVICES.items():
        try:
            seconds, peak = _timed(device)
        except subprocess.CalledProcessError as error:  # a failed benchmark is a result too
            rows.append({"name": "sweeps", "failed": f"{device}: {error.stderr.splitlines()[-1]}"})
            continue
        workload = f"10^7 points, {device} ({unit}): {1e7 / seconds:.3g} points/s, {peak / 1e9:.2f} GB"
        found = row("sweeps", workload, seconds, TARGET_S, "target", "s", TARGET_S / seconds)
        rows.append(found | {"peak_bytes": peak, "peak_target_bytes": TARGET_BYTES, "load": os.getloadavg()[0]})
    return rows


def _timed(device: str) -> tuple[float, int]:
    """Seconds and peak bytes of one sweep."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "sweep.toml"
        settings.write_text(SWEEP.format(device=device))
        command = [sys.executable, "-m", "jaxspec", "sweep", str(settings), "--out", str(Path(folder) / "run")]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            error = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=error)
        return time.perf_counter() - began, used.ru_maxrss * 1024
