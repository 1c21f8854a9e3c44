"""The command `jaxspec evaluate`."""

from jaxspec.studies.evaluate.config import EvaluateConfig
from jaxspec.studies.study import Study, run_directory

__all__ = ["EVALUATE"]

_HELP = """Measure one draft with given knobs.

Measures acceptance, bits and tokens per cycle, decodes held-out prompts, and predicts the speedup.

\b
jaxspec evaluate --weight-prune 0.3 --weight-cut-bits 5
srun jaxspec evaluate --model DIR --distributed       one network on the devices of several hosts
"""

#: The study of one given draft.
EVALUATE = Study(
    name="evaluate",
    config=EvaluateConfig,
    help=_HELP,
    run="jaxspec.studies.evaluate.run:evaluate",
    present="jaxspec.studies.evaluate.report:shown",
    figures="jaxspec.studies.evaluate.report:figures",
    announce=lambda config: f"{config.model} priced as {config.architecture} on {', '.join(config.device)}",
    out=run_directory("evaluate"),
    meshed=True,
)
