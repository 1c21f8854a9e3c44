"""The command `jaxspec calibrate`."""

from jaxspec.output_places import check_file_place
from jaxspec.studies.calibrate.config import CalibrateConfig
from jaxspec.studies.calibrate.example import EXAMPLE
from jaxspec.studies.study import Out, Study

__all__ = ["CALIBRATE"]

_HELP = """Measure this machine and write a file for --device.

Your own measured times can replace the measurement (--from).

\b
jaxspec calibrate -o my-machine.toml                        measures this machine through JAX, in some minutes
jaxspec calibrate --quick                                   only the shapes of the embedded network
jaxspec calibrate --architecture qwen3-0.6b,qwen3-4b        the shapes of your networks
jaxspec calibrate --example > times.csv                     an example of a file of your own times
jaxspec calibrate --from times.csv -o my-board.toml
jaxspec predict --device my-machine.toml                    and tune, evaluate, tree, sweep, scale

Measured are matrix products by rows, attention by context and rows, whole steps, streams, look-ups, sampling and loops,
each within a compiled loop, as decoding runs it. A few numbers are fitted to the times. The file also contains the measured
costs of rows, the errors on shapes that the fit did not see, and 90 % intervals. If the machine was too busy for reliable
times, the command says so. All measurements are kept in the run directory; the same command resumes an interrupted run.
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
