"""A study with settings, typed results, tables and figures that needs no compilation."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from matplotlib.figure import Figure

from jaxspec.report import Shown, Table
from jaxspec.report.page import Drawings
from jaxspec.results import UNKNOWN, Quantity, Record, Result, given, predicted
from jaxspec.runs import Reporter, RunDirectory
from jaxspec.runs.execute import Outputs, execute_run
from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.fields import setting
from jaxspec.studies.study import Study, run_directory


@dataclasses.dataclass(frozen=True)
class ToyConfig(Settings):
    width: int = setting(3, "Width of the toy.", low=1, high=9, quick=2)
    depth: float | None = setting(None, "Depth of the toy.", low=0, high=5, unset="its width")
    device: tuple[str, ...] = setting(("bench",), "Devices.")
    weights: dict[str, float] = setting(dict, "Weights by name.", sizes=(1e-6, 1e6))
    seed: int = setting(0, "Seed.", low=0, high=99)

    unused = (Unused(("depth",), lambda config: config.width == 1, "a toy of width 1 is flat"),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side(Record):
    length: Quantity[int] = UNKNOWN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyResult(Result):
    device: str | None = None
    area: Quantity[float] = UNKNOWN
    sides: list[Side] = dataclasses.field(default_factory=list)


def build(
    config: ToyConfig, *, out: str | None = None, force: bool = False, reporter: Reporter | None = None
) -> tuple[list[ToyResult], RunDirectory]:
    def prepare(directory: RunDirectory, reporter: Reporter):
        def work():
            with reporter.bar("building", 1) as bar:
                bar.advance("built")
            sides = [Side(length=given(config.width)), Side(length=given(config.width + 1))]
            area = predicted(config.width**2 + 0.5 * config.seed)
            return [ToyResult(device=name, area=area, sides=sides).plain() for name in config.device]

        return work

    outputs = Outputs(headline=("area", "absent.number"))
    entries, directory = execute_run("toy", config, prepare, out=out, force=force, reporter=reporter, outputs=outputs)
    return [ToyResult.from_plain(entry) for entry in entries], directory


def shown(returned: tuple[list[ToyResult], RunDirectory]) -> Shown:
    results, directory = returned
    tables = []
    for result in results:
        table = Table(f"Toy <b>on</b> {result.device}", "an area")
        table.add_column("area")
        table.add_row(f"{result.area.value}", style="bold")
        tables.append(table)
    return Shown([result.plain() for result in results], tables, ["that is all"], f"result: {directory.path}")


def figures(result: ToyResult, directory: Path | None) -> Drawings:
    return {"square": Figure, "nothing": lambda: None, "place": lambda: Figure(label=str(directory))}


TOY = Study(
    name="toy",
    config=ToyConfig,
    help="Build a toy.\n\n\b\njaxspec toy --width 4\n\nIt has an area.",
    run="toy_bench:build",
    present="toy_bench:shown",
    figures="toy_bench:figures",
    out=run_directory("toy"),
)


def area(config: ToyConfig) -> ToyResult:
    return ToyResult(device=config.device[0], area=predicted(float(config.width)))


def area_shown(result: ToyResult) -> Shown:
    return Shown(result.plain(), [])


#: Without a run directory, as `jaxspec predict`.
PLAIN_TOY = Study(
    name="plain-toy", config=ToyConfig, help="Tell an area.", run="toy_bench:area", present="toy_bench:area_shown"
)
