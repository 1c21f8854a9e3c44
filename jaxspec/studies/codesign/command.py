"""The command `jaxspec codesign`."""

from jaxspec.studies.codesign.config import CodesignConfig
from jaxspec.studies.codesign.examples import EXAMPLES
from jaxspec.studies.study import Study, run_directory

__all__ = ["CODESIGN"]

_HELP = """Design draft and hardware together, under budgets.

Gradients find the fastest design within budgets of area, power, bandwidth and price.

\b
jaxspec codesign --example npu > problem.toml     or fpga, or moe
jaxspec codesign problem.toml

The problem file lists the numbers that may change, with their ranges: knobs of the draft (draft.weight_prune) and numbers of
the device (device.memory.bandwidth_bytes_per_s). It also states their costs, and budgets of area, power, bandwidth or price.
A number that costs nothing is refused. Acceptance is a law fitted to points of a table, or to a finished run of jaxspec tune.

Writes result.json, report.html and figures: the original and the proposed design, the worth of each budget, the gain from one
more mm2 or watt. Counts are rounded, and all reported numbers are evaluated exactly. The same command resumes a stopped run.
"""

#: The study of draft and hardware together.
CODESIGN = Study(
    name="codesign",
    config=CodesignConfig,
    help=_HELP,
    run="jaxspec.studies.codesign.run:codesign",
    present="jaxspec.studies.codesign.report:shown",
    figures="jaxspec.studies.codesign.figures:figures",
    announce=lambda config: (
        f"{len(config.variables)} variables of {config.scheme} for {config.architecture} on {config.device}"
    ),
    out=run_directory("codesign"),
    config_argument="PROBLEM.toml",
    examples=EXAMPLES,
)
