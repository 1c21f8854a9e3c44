"""Products measured with weights from the second-level cache, as they do not come within a model.

A measurement of the kernel tables passes through a few copies of a weight matrix in turn. Copies that fit into the cache
together stay there, so that only larger matrices stream from memory. A time tells this only where it is shorter than memory
allows (`gemm.from_memory`); beside a launch of some microseconds, times of small matrices from the cache are not.

Source: `collector/ENGINE/collect_gemm.py` of github.com/ai-dynamo/aiconfigurator for the copies; the vendors' data sheets and
architecture papers for the caches. Seen in FP8 tables at up to 16 rows: where six copies outgrow the cache, measured over
fitted times rise by 15 to 20 % (H100, H200, B200) and by factors of 2 to 3 (L40S).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hwmodels.analysis.calibration.kernel_tables import KERNEL_FORMATS, DataSheet, GemmTable, TableName

__all__ = ["CACHE_BYTES", "cached_bytes", "in_cache", "rows_from_cache"]

#: Second-level cache by system of the tables; systems without a number here have no cache to leave out.
CACHE_BYTES = {
    "a100_sxm": 40e6,  # NVIDIA A100 Tensor Core GPU architecture, table 1
    "h100_sxm": 50e6,  # NVIDIA H100 Tensor Core GPU architecture, table 3
    "h200_sxm": 50e6,  # the H100's chip
    "l40s": 96e6,  # NVIDIA Ada GPU architecture, AD102
    "b200_sxm": 126e6,  # cudaDeviceProp.l2CacheSize, both dies
    "rtx_pro_6000_server": 128e6,  # NVIDIA RTX Blackwell PRO GPU architecture
}

#: Copies by engine, and formats that are measured with another number.
_COPIES = {"trtllm": 5.0, "vllm": 6.0, "sglang": 6.0}
_OTHERS = {("vllm", "fp8_block"): 1.0, ("vllm", "nvfp4"): 1.0}


def cached_bytes(table: TableName, weight_format: str) -> float:
    """The largest weights of a table, in bytes, that its measurement may have found in the cache; 0 where nothing is known."""
    copies = _OTHERS.get((table.engine, weight_format), _COPIES.get(table.engine, 0.0))
    return CACHE_BYTES.get(table.system, 0.0) / copies if copies else 0.0


def in_cache(table: TableName, rows: GemmTable) -> npt.NDArray[np.bool_]:
    """Which rows, "row", multiply by a matrix that may have come from the cache: all rows of a shape alike."""
    return _weight_bytes(rows) <= cached_bytes(table, rows.weight_format)


def rows_from_cache(table: TableName, rows: GemmTable, sheet: DataSheet) -> npt.NDArray[np.bool_]:
    """Which rows, "row", multiply by such a matrix and wait for it: reading it takes at least as long as the arithmetic.

    At more rows than that, no cache makes a product faster, and the row says as much as that of a larger matrix.

    Args:
        sheet: of the GPU; both times are at its rates.
    """
    form = KERNEL_FORMATS[rows.weight_format]
    read_s = _weight_bytes(rows) / sheet.bandwidth_bytes_per_s
    arithmetic_s = 2.0 * rows.m * rows.k * rows.n / (form.arithmetic_rate * sheet.peak_flops_per_s)
    return in_cache(table, rows) & (arithmetic_s <= read_s)


def _weight_bytes(rows: GemmTable) -> npt.NDArray[np.float64]:
    return rows.k * rows.n * (rows.weight_bits / 8)
