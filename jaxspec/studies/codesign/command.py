"""The command `jaxspec codesign`."""

from jaxspec.studies.codesign.config import CodesignConfig
from jaxspec.studies.codesign.examples import EXAMPLES
from jaxspec.studies.study import Study, run_directory

__all__ = ["CODESIGN"]

_HELP = """Design draft and hardware together: the fastest combination that your budgets allow, by gradient.

\b
jaxspec codesign --example npu > problem.toml     or fpga, or moe
jaxspec codesign problem.toml

The problem names the numbers that may change, with their ends: knobs of the draft (draft.weight_prune) and numbers of the
device (device.memory.bandwidth_bytes_per_s); what they cost; and budgets of area, power, bandwidth or price. A number that
costs nothing is refused. Acceptance is a law fitted to points of a table, or to a finished run of jaxspec tune.

Writes result.json, report.html and figures: the design before and the proposal, what each budget is worth, what one more mm2
or watt would buy. Counts are rounded and everything reported is evaluated exactly. The same command goes on with a stopped
run.
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
