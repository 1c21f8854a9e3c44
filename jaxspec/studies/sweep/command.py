"""The command `jaxspec sweep`."""

from jaxspec.studies.study import Study, run_directory
from jaxspec.studies.sweep.config import EXAMPLE, SweepConfig

__all__ = ["SWEEP"]

_HELP = """Evaluate every combination of axes over device, network, workload, footprint and acceptance.

\b
jaxspec sweep --example > sweep.toml
jaxspec sweep sweep.toml
jaxspec sweep sweep.toml --shard 1/8 --out part-1     one of eight parts, as of a job array
jaxspec sweep merge part-1 part-2 ...                 the parts as one sweep
srun jaxspec sweep sweep.toml --distributed           processes of jax.distributed share one sweep

Writes sweep.parquet (axes and results, one row per design point, read it with jaxspec.studies.read_sweep or any reader
of Parquet), figures/pareto.png and result.json. One compiled program evaluates up to 32,768 points at a time on each
local device; what is written stays when a sweep is killed, and the same command goes on from there.
"""

#: The study of many design points.
SWEEP = Study(
    name="sweep",
    config=SweepConfig,
    help=_HELP,
    run="jaxspec.studies.sweep.run:sweep",
    present="jaxspec.studies.sweep.report:shown",
    figures="jaxspec.studies.sweep.figures:figures",
    points="jaxspec.studies.sweep.figures:points",
    out=run_directory("sweep"),
    config_argument="SWEEP.toml",
    example=EXAMPLE,
    shared=True,
    subcommands={"merge": "jaxspec.cli.sweeps:merge"},
)
