"""The command `jaxspec calibrate`."""

from jaxspec.output_places import check_file_place
from jaxspec.studies.calibrate.config import CalibrateConfig
from jaxspec.studies.calibrate.example import EXAMPLE
from jaxspec.studies.study import Out, Study

__all__ = ["CALIBRATE"]

_HELP = """Measure this machine, or read your own measured times, and write a device file for --device.

\b
jaxspec calibrate -o my-machine.toml                        this machine, through JAX, in some minutes
jaxspec calibrate --quick                                   the shapes of the embedded network alone
jaxspec calibrate --architecture qwen3-0.6b,qwen3-4b        shapes of your networks
jaxspec calibrate --example > times.csv                     columns of a file of your own times
jaxspec calibrate --from times.csv -o my-board.toml
jaxspec predict --device my-machine.toml                    and tune, evaluate, tree, sweep, scale

Times are those of products of matrices by rows, of attention over context and rows, of whole steps, streams, look-ups,
sampling and loops, each within a compiled loop as decoding runs it. A few numbers are fitted to them, with the measured steps
of rows beside them; the file holds the errors on shapes that the fit did not see, and 90 % intervals. A machine that was too
busy to be believed is told as such. Everything measured is kept in the run directory; the same command resumes it.
"""

#: The study that measures a machine.
CALIBRATE = Study(
    name="calibrate",
    config=CalibrateConfig,
    help=_HELP,
    run="jaxspec.studies.calibrate.run:calibrate",
    present="jaxspec.studies.calibrate.report:shown",
    figures="jaxspec.studies.calibrate.report:figures",
    announce=lambda config: (
        "this machine, through JAX" if config.measurements is None else f"times of {config.measurements}"
    ),
    out=Out("Device file.", "my-machine.toml", "Measure anew.", names=("-o",), check=check_file_place),
    example=EXAMPLE,
    example_of="measured times",
)
