"""The command `jaxspec scale`."""

from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.study import Plot, Study, run_directory

__all__ = ["SCALE"]

_HELP = """Compare several samples per problem with drafted tokens.

\b
jaxspec scale --quick                         functions of the standard library; cost of Llama 3.1 8B on an RTX 4090
jaxspec scale --method pass-at-n,beam --samples 1,4,16 --device hexagon-v75,rtx-4090
jaxspec scale --model embedded,embedded-small --architecture llama-3.1-8b,llama-3.2-1b --accuracy 0.5
jaxspec scale --acceptance 0.7 --batches 1,8,64
srun jaxspec scale --model DIR --distributed   one network on the devices of several hosts

A device that decodes one text leaves its matrix units mostly idle. N samples of one problem use them at nearly the same
time per step; so do N drafted tokens in one verification. Samples increase accuracy, drafted tokens save time.

Accuracy is measured on the given networks, and so is the length of the longest sample, which ends a batch. Time, energy and
memory are predicted for --architecture on --device, with the prompt shared by its samples. Python written by a network is
parsed in a process with limits of time and memory. With --check doctests it runs, isolated by bubblewrap or by unshare of
util-linux; where neither works, it is refused unless --unsafe-run-code insists. A run directory keeps everything; the same
command resumes an interrupted run and reprints a finished one.

Methods: pass-at-n takes any right sample and needs a checker, which for Python is a program; best-of-n and beam choose by
--score; majority counts answers. "No plan reaches that accuracy" is a possible answer.
"""

#: The study of test-time scaling.
SCALE = Study(
    name="scale",
    config=ScaleConfig,
    help=_HELP,
    run="jaxspec.studies.scale.run:scale",
    present="jaxspec.studies.scale.report:shown",
    figures="jaxspec.studies.scale.report:figures",
    announce=lambda config: (
        f"{', '.join(config.model)} on {config.task}, priced as {', '.join(config.architecture)} on {', '.join(config.device)}"
    ),
    out=run_directory("scale"),
    meshed=True,
    plot=Plot("Write a figure: accuracy against the cost of every plan.", "jaxspec.studies.scale.figures.costs:plot"),
)
