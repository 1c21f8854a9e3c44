"""The command `jaxspec predict`."""

from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.study import Plot, Study

__all__ = ["PREDICT"]

_HELP = """Predict speedup, time, energy and memory; no network runs.

The inputs are the shapes of a network, a device, a storage scheme and an acceptance.

\b
jaxspec predict --device cassandra-npu --acceptance 0.9
jaxspec predict --architecture qwen3-30b-a3b --device elmoe3d-hb8 --scheme elastic --batch 4
jaxspec predict --architecture qwen3-30b-a3b --device elmoe3d-hb8 --scheme elastic --placement by_mode --pool-fits
jaxspec predict --architecture path/to/config.json --device my-chip.toml --scheme q4_0 --plot predict.png

Draft length 0 is autoregressive decoding of the stored format; if it is the fastest, no draft pays.
"""

#: The study that runs no network.
PREDICT = Study(
    name="predict",
    config=PredictConfig,
    help=_HELP,
    run="jaxspec.studies.predict.run:predict",
    present="jaxspec.studies.predict.report:shown",
    on_processor=True,
    figures="jaxspec.studies.predict.figures:figures",
    plot=Plot(
        "Write a figure: speedups, operators, sensitivities.", "jaxspec.studies.predict.figures:prediction_figure"
    ),
)
