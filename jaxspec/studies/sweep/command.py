"""The command `jaxspec sweep`."""

from jaxspec.studies.study import Study, run_directory
from jaxspec.studies.sweep.config import EXAMPLE, SweepConfig

__all__ = ["SWEEP"]

_HELP = """Evaluate every combination of any numbers.

An axis is any number of device, network, workload, footprint or acceptance.

\b
jaxspec sweep --example > sweep.toml
jaxspec sweep sweep.toml
jaxspec sweep sweep.toml --shard 1/8 --out part-1     one of eight parts, for a job array
jaxspec sweep merge part-1 part-2 ...                 joins the parts
srun jaxspec sweep sweep.toml --distributed           processes of jax.distributed share one sweep

Writes sweep.parquet (axes and results, one row per design point; jaxspec.studies.read_sweep or any reader of Parquet reads
it), figures/pareto.png and result.json. One compiled program evaluates up to 32,768 points at a time on each
local device. If a sweep is killed, finished parts are kept, and the same command resumes it.
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
