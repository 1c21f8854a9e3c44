"""ELMoE-3D's tables, declared."""

from __future__ import annotations

from pathlib import Path

from experiments.papers.elmoe3d import figures, measured_figures, more_figures, tables
from experiments.papers.elmoe3d.details import DETAILS, missed_bars
from experiments.papers.elmoe3d.printed import NAME
from experiments.papers.elmoe3d.results import solve
from experiments.reproduce.errors import constant
from experiments.reproduce.paper import Paper, PrintedTable

__all__ = ["PAPER"]

TABLES = (
    PrintedTable(
        name="table1_system_spec",
        title="Table 1: system",
        model=tables.system,
        label=("component", "parameter", "hb_capacity_gb"),
        simplest={"one constant": constant()},
        choices=(
            "rates follow from PEs, banks, pins and clocks: arithmetic on printed numbers",
            "TOPS are cut, not rounded",
        ),
    ),
    PrintedTable(
        name="table2_models",
        title="Table 2: targets",
        model=tables.models,
        label=("model",),
        simplest=tables.simplest_models,
        choices=("from the published configurations in the catalog; active parameters without the embedding",),
        doubts=("GPT-OSS-20B's 3.6B active parameters count neither embedding nor head",),
    ),
    PrintedTable(
        name="table3_sd_schemes",
        title="Table 3: speedups of four schemes over the xPU, MT-Bench",
        model=tables.schemes,
        label=("hb_capacity_gb", "model", "method", "batch_size"),
        simplest=tables.simplest_schemes,
        fitted=lambda solved: solved.fit.numbers,
        fitted_to="the 128 speedups with 8 GB: three numbers per target and four that all share",
        choices=(
            "acceptance is a fraction of ten drafted tokens: a cycle gains 1 + 10 alpha",
            "KV in 16 bits, a draft's own in INT8; INT8 and 4-bit weights with an FP16 scale of 32, MXFP4 as it is",
            "autoregressive decoding caches whole experts, Elastic-SD their leading bits while it speculates",
            "GPT-OSS-20B: MXFP4 experts, so that Elastic-SD is throttling alone",
            "the same whole number of experts is cached in each layer; the embedding table lies outside",
            "Quant-SD caches 4-bit copies that autoregressive decoding cannot use; its dense ones lie in HB in a cycle",
            "EAGLE heads: a dense layer over two states, a projection of three, an LM head; Qwen's and GPT-OSS's own embedding",
            "60 nodes are verified and 6 drafted per level: arithmetic alone depends on them",
        ),
        doubts=(
            "the model was frozen before the 4 GB half was scored; that the embedding may lie inside, a literal reading of "
            "'static weights', was seen only then: it is a variant beside the model",
            "with one or two cached experts per layer a power law hits far too often: SLM-SD with 4 GB",
            "no autoregressive cell tells how alike requests of GPT-OSS-20B are: its Quant-SD has a cache",
        ),
    ),
    PrintedTable(
        name="claims",
        title="Prose: averages of Table 3, and energy per token",
        model=tables.claims,
        label=("claim_id", "conditions"),
        simplest=tables.simplest_claims,
        fitted=lambda solved: solved.fit.numbers,
        fitted_to="the 128 speedups with 8 GB",
        choices=("energy is that of accesses to memory, whose energy per bit is printed",),
        doubts=(
            "arithmetic, communication and static power are not printed",
            "6.6x and 2.2x cover data sets whose acceptance is not printed, and are no target",
        ),
    ),
)

PAPER = Paper(
    name=NAME,
    title=(
        "ELMoE-3D: Leveraging Intrinsic Elasticity of MoE for Hybrid-Bonding-Enabled Self-Speculative Decoding "
        "in On-Premises Serving"
    ),
    folder=Path(__file__).parent,
    minutes=2,
    tables=TABLES,
    solve=lambda seed: solve(),
    details=DETAILS,
    figures={
        "table3": lambda outcome: figures.table_figure(outcome.solved),
        "fig4": lambda outcome: figures.intensity_figure(outcome.solved),
        "fig5b": lambda outcome: measured_figures.pool_and_bits_figure(),
        "fig9": lambda outcome: figures.roofline_figure(),
        "fig12": lambda outcome: figures.mapping_figure(outcome.solved),
        "fig13": lambda outcome: figures.latency_figure(outcome.solved),
        "fig14": lambda outcome: more_figures.platform_figure(outcome.solved),
        "fig15": lambda outcome: more_figures.energy_figure(outcome.solved),
        "fig16": lambda outcome: more_figures.locality_figure(outcome.solved),
        "fig17ab": lambda outcome: measured_figures.pools_figure(),
        "fig17c": lambda outcome: measured_figures.readings_figure(),
    },
    missed_bars=missed_bars,
)
