"""A folder of made-up kernel tables, as the package lays them out."""

import numpy as np
import pyarrow
from pyarrow import parquet

SHEET = "gpu:\n  mem_bw: 2000000000000 # 2 TB/s\n  bfloat16_tc_flops: 300000000000000\n"


def write_tables(root, gemm=None, attention=None, moe=None, prefill=None, system="toy"):
    """Writes those tables that are given as name -> column."""
    (root / f"{system}.yaml").write_text(SHEET, encoding="utf-8")
    for kind, file, columns in (
        ("gemm", "gemm_perf.parquet", gemm),
        ("attention", "generation_attention_perf.parquet", attention),
        ("attention", "context_attention_perf.parquet", prefill),
        ("moe", "moe_perf.parquet", moe),
    ):
        if columns is not None:
            folder = root / "data" / system / kind / "engine" / "1.0"
            folder.mkdir(parents=True, exist_ok=True)
            parquet.write_table(pyarrow.table(columns), folder / file)
    return root


def gemm_columns(seconds, weight_format="bfloat16"):
    """A grid of shapes with times in milliseconds by a function of m, k, n."""
    m, k, n = (
        side.ravel()
        for side in np.meshgrid([1, 3, 16, 48, 200, 1000, 3000], [1024, 1536, 4096, 9216], [1024, 2560, 6144, 20000])
    )
    latency = 1e3 * np.asarray(seconds(m.astype(float), k.astype(float), n.astype(float)), float)
    return {"gemm_dtype": [weight_format] * len(m), "m": m, "k": k, "n": n, "latency": latency}


def attention_columns(seconds):
    """Batches, contexts and key heads, with times in milliseconds by a function of them."""
    batch, step, heads = (
        side.ravel() for side in np.meshgrid([1, 2, 4, 8, 16, 32], [127, 511, 1023, 4095, 16383], [2, 4, 8])
    )
    latency = 1e3 * np.asarray(seconds(batch.astype(float), step + 1.0, heads.astype(float)), float)
    same = lambda value: [value] * len(batch)
    return {
        "batch_size": batch,
        "isl": same(1),
        "num_heads": same(32),
        "num_key_value_heads": heads,
        "head_dim": same(128),
        "step": step,
        "kv_cache_dtype": same("bfloat16"),
        "latency": latency,
    }


def prefill_columns(seconds):
    """The same of prompts: batches, tokens and key heads."""
    batch, tokens, heads = (side.ravel() for side in np.meshgrid([1, 2, 4, 16], [64, 256, 1024, 4096, 9000], [2, 4, 8]))
    columns = attention_columns(lambda *sizes: sizes[0])
    latency = 1e3 * np.asarray(seconds(batch.astype(float), tokens.astype(float), heads.astype(float)), float)
    same = {name: [values[0]] * len(batch) for name, values in columns.items()}
    own = {"batch_size": batch, "isl": tokens, "step": 0 * batch, "num_key_value_heads": heads, "latency": latency}
    return same | own
