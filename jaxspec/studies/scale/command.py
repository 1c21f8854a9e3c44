"""The command `jaxspec scale`."""

from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.study import Plot, Study, run_directory

__all__ = ["SCALE"]

_HELP = """Answer each problem N times and choose: what does it gain, what does it cost, and is speculation the better use?

\b
jaxspec scale --quick                         functions of the standard library, Llama 3.1 8B priced on an RTX 4090
jaxspec scale --method pass-at-n,beam --samples 1,4,16 --device hexagon-v75,rtx-4090
jaxspec scale --model embedded,embedded-small --architecture llama-3.1-8b,llama-3.2-1b --accuracy 0.5
jaxspec scale --acceptance 0.7 --batches 1,8,64

A device that decodes one text leaves its matrix units idle. N samples of one problem fill their rows at nearly the same
time per step; so do N drafted tokens in one verification. Samples buy accuracy, drafted tokens buy time.

Accuracy is measured on the networks named; a batch runs until its longest sample ends, so that its length is measured
too. Time, energy and memory are predicted for --architecture on --device, with the prompt shared by its samples. Python
from a network is looked at in a process of its own with limits of time and memory. A run directory keeps everything; the
same command resumes a killed run and reprints a finished one.

Methods: pass-at-n needs a checker that tells right from wrong, which for Python is a program; best-of-n and beam go by
--score; majority counts answers. "No plan reaches that accuracy" is an answer.
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
    plot=Plot("Write a figure: accuracy against the cost of every plan.", "jaxspec.studies.scale.figures.costs:plot"),
)
