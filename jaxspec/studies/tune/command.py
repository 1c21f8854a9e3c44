"""The command `jaxspec tune`."""

from jaxspec.studies.study import Study, run_directory
from jaxspec.studies.tune.config import TuneConfig

__all__ = ["TUNE"]

_HELP = """Tune a draft by gradient, and prove it by decoding.

The draft is a subset of the target's own bits: each matrix, and each layer's KV cache, has a pruning ratio and a
number of cut mantissa bits. Steps: calibrate, measure a grid, tune by gradient, round to whole bits, decode held-out
prompts, report. Acceptance is measured on --model (by default the small embedded network), cost is
predicted for --architecture on --device. A run directory keeps everything; the same command resumes an interrupted
run and reprints a finished one.

\b
jaxspec tune --device rtx-4090,cassandra-npu
srun jaxspec tune --model DIR --distributed           one network on the devices of several hosts
"""

#: The study of drafts that are tuned by gradient.
TUNE = Study(
    name="tune",
    config=TuneConfig,
    help=_HELP,
    run="jaxspec.studies.tune.run:tune",
    present="jaxspec.studies.tune.report:shown",
    figures="jaxspec.studies.tune.report:figures",
    announce=lambda config: f"{config.model} priced as {config.architecture} on {', '.join(config.device)}",
    out=run_directory("tune"),
    meshed=True,
)
