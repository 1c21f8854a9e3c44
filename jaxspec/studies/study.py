"""What makes a command out of a study: its settings, its help, where it runs and is shown; and the registry of all of them.

Nothing here imports JAX.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jaxspec
from jaxspec.output_places import check_folder_place
from jaxspec.registries import Registry, load_object
from jaxspec.settings.base import Settings

__all__ = ["STUDIES", "Out", "Plot", "Study", "checked_later", "find_study", "run_directory"]


def _help_in(package: str) -> str:
    r"""Text of `--help` from the file `help.txt` of a package. Click leaves the paragraph behind a line `\b` as it is."""
    text = importlib.resources.files(package).joinpath("help.txt").read_text(encoding="utf-8")
    return text.replace("\\b\n", "\b\n")


def checked_later(path: str, what: str) -> None:
    """No check of a place yet, for `Out.check`: the study itself knows more about what may be there."""


@dataclasses.dataclass(frozen=True)
class Out:
    """`--out` and `--force` of a command that writes.

    Attributes:
        what: is written, for help.
        default: place used without the option, in words.
        force: help of `--force`.
        names: further names of the option.
        check: of the place, made before any work.
        keeps_result: whether the same command finds the result there and shows it again.
    """

    what: str
    default: str
    force: str
    names: tuple[str, ...] = ()
    check: Callable[[str, str], None] = check_folder_place
    keeps_result: bool = False


@dataclasses.dataclass(frozen=True)
class Plot:
    """`--plot` of a command.

    Attributes:
        what: is drawn, for help.
        draw: "module:function" from what the study returned to a figure.
    """

    what: str
    draw: Place


#: "module:function", which is loaded when it is called, or the function.
Place: TypeAlias = str | Callable[..., Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """One command: the command line makes its flags, help and checks from this.

    Where "module:function" is asked for, the function itself will do.

    Attributes:
        name: of the command.
        config: its settings; each but tables becomes a flag.
        help: text of `--help`, as Click reads it; of our own studies in `help.txt` beside the settings.
        run: "module:function" from a configuration, and `out`, `force` and `reporter` where it writes, or `checked` (which it
            calls when all inputs are known to be good) where it takes that, to a result, a list of
            results (one per device), or either with its run directory; the annotation of what it returns says which. Unless
            given, the function of the study's name in `run` beside the settings.
        present: "module:function" from that result to a `jaxspec.report.terminal.Shown`; unless given, `shown` in `view` there.
        announce: line printed before the first other one, when all input is known to be good; None: none.
        out: where it writes; None: nowhere.
        plot: figure that it can draw.
        figures: "module:function" from one result and its directory (a path, or None) to figures by name, each as a function
            that draws it, or None where the data is absent; "": there are none.
        points: "module:function" from one result to columns by name, for results of many rows; "": it has none.
        first: settings that `--help` shows beside those that all commands show; `--help-all` has the others.
        argument: setting that is given without a flag; "": none.
        argument_name: what help calls it.
        config_argument: name of the file of settings where that is an argument instead of `--config`; "": it is not.
        example: file to begin with, printed by `--example`; "": none.
        example_of: what that file has, in words.
        examples: several of them by name, of which `--example NAME` prints one, the first without a name.
        shared: whether several processes of `jax.distributed` may share one run.
        meshed: whether these processes share a mesh of all their devices, and not parts of the work.
        on_processor: whether the command line runs it on the processor beside a GPU too, unless JAX_PLATFORMS says otherwise:
            it prices single designs, in many small kernels that take a GPU's compiler longer than all else.
        subcommands: word that may stand in place of an argument -> "module:command" of the command line.
    """

    name: str
    config: type[Settings]
    help: str = ""
    run: Place = ""
    present: Place = ""
    announce: Callable[[Any], str] | None = None
    out: Out | None = None
    plot: Plot | None = None
    figures: Place = ""
    points: Place = ""
    first: tuple[str, ...] = ()
    argument: str = ""
    argument_name: str = ""
    config_argument: str = ""
    example: str = ""
    example_of: str = "settings"
    examples: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shared: bool = False
    meshed: bool = False
    on_processor: bool = False
    subcommands: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        package = self.config.__module__.rpartition(".")[0]
        object.__setattr__(self, "help", self.help or _help_in(package))
        object.__setattr__(self, "run", self.run or f"{package}.run:{self.name}")
        object.__setattr__(self, "present", self.present or f"{package}.view:shown")


def run_directory(name: str) -> Out:
    """`--out` of a command that keeps a run directory."""
    return Out(
        "Run directory.", f"runs/{name}-<hash of the settings>", "Start the run directory anew.", keeps_result=True
    )


def _accept(name: str, given: Any) -> Study:
    study = load_object(given)
    if not isinstance(study, Study) or study.name != name:
        raise ValueError(f"study {name!r} is {study!r:.60}; give a Study of this name")
    return study


#: Command -> its `Study`, or "module:name" of it, in the order of `jaxspec --help`.
STUDIES: Registry[Study | str] = Registry(
    "study",
    {
        "tune": "jaxspec.studies.tune.config:TUNE",
        "evaluate": "jaxspec.studies.evaluate.config:EVALUATE",
        "tree": "jaxspec.studies.tree.config:TREE",
        "predict": "jaxspec.studies.predict.config:PREDICT",
        "sweep": "jaxspec.studies.sweep.config:SWEEP",
        "codesign": "jaxspec.studies.codesign.config:CODESIGN",
        "compare": "jaxspec.studies.compare.config:COMPARE",
        "scale": "jaxspec.studies.scale.config:SCALE",
        "advise": "jaxspec.studies.advise.config:ADVISE",
        "serve": "jaxspec.studies.serve.config:SERVE",
        "pack": "jaxspec.studies.pack.config:PACK",
        "calibrate": "jaxspec.host.config:CALIBRATE",
        "export": "jaxspec.studies.export.config:EXPORT",
    },
    _accept,
    # Commands that are no studies, and other public names of `jaxspec`, among which `js.NAME` would not find the study.
    taken=("models", "runs", *jaxspec.__all__),
)


def find_study(name: str) -> Study:
    """The study behind a command."""
    return load_object(STUDIES[name])
