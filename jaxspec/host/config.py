"""Settings of `jaxspec calibrate`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Literal

from jaxspec.errors import InputError
from jaxspec.output_places import check_file_place
from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.coercion import shown
from jaxspec.settings.fields import setting
from jaxspec.studies.study import Out, Study

#: Formats in which matrices may be held, with their bits.
FORMATS = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0}


#: Which of the repeats counts.
Statistic = Literal["median", "least"]


def _check_formats(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in FORMATS:
            raise InputError(f"formats has {shown(name)}; allowed are {', '.join(FORMATS)}")
    if len({FORMATS[name] for name in names}) < len(names):
        raise InputError(f"formats are {', '.join(names)}; two of them have as many bits: leave one out")


def _check_file(path: str | None) -> None:
    if path is not None and not os.path.isfile(path):
        raise InputError(
            f"measurements {shown(path)} is no file; give a CSV file (jaxspec calibrate --example prints one)"
        )


def _from_file(config: CalibrateConfig) -> str | None:
    return None if config.measurements is None else "the times come from a file"


@dataclasses.dataclass(frozen=True)
class CalibrateConfig(Settings, stated_beside=__file__):
    """`jaxspec calibrate`.

    Raises:
        InputError: a value out of its range; settings that do not fit together.
    """

    measurements: str | None = setting(None, check=_check_file)
    architecture: tuple[str, ...] = setting(("embedded", "qwen2.5-0.5b", "llama-3.2-1b"), quick=("embedded",))
    formats: tuple[str, ...] = setting(("float32", "bfloat16"), check=_check_formats, quick=("float32",))
    rows: int = setting(512)
    repeats: int = setting(7)
    statistic: Statistic = setting("median")

    unused = (Unused(("architecture", "formats", "rows", "repeats", "statistic"), _from_file),)

    @property
    def widest(self) -> str:
        """The format of the most bits: of it, products of all rows are timed, and whole networks."""
        return max(self.formats, key=lambda name: FORMATS[name])


#: Times of no machine in particular: those of a form, with 2 % of noise.
EXAMPLE = Path(__file__).with_name("example.csv").read_text(encoding="utf-8")


#: The study that measures a machine.
CALIBRATE = Study(
    name="calibrate",
    config=CalibrateConfig,
    figures="jaxspec.host.view:figures",
    announce=lambda config: (
        "this machine, through JAX" if config.measurements is None else f"times of {config.measurements}"
    ),
    out=Out("Device file.", "my-machine.toml", "Measure anew.", names=("-o",), check=check_file_place),
    example=EXAMPLE,
    example_of="measured times",
)
