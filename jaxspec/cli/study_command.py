"""The command line of a study, generated from its settings: flags, help, bad input, run directory, JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from jaxspec.cli.options import (
    FIRST,
    RUN_KEEPS_IT,
    Command,
    config_option,
    force_option,
    give_out,
    json_option,
    out_option,
    plot_option,
    quick_option,
    resolve,
    settings_options,
    words_or_files,
    write_json,
)
from jaxspec.errors import InputError
from jaxspec.output_places import check_apart
from jaxspec.registries import load_object
from jaxspec.settings.base import Settings, quick_settings
from jaxspec.settings.fields import fields_of
from jaxspec.studies.study import Study

if TYPE_CHECKING:
    from jaxspec.report.terminal import Shown
    from jaxspec.runs.progress import Reporter

__all__ = ["Launch", "keep_to_processor", "launch_of", "launch_options", "print_shown", "study_command"]


#: New objects between two looks for garbage; Python's own number is 700.
_NEW_OBJECTS = 100_000

#: After so long a reader wants to know what a command does.
_PATIENCE_S = 1.0

#: Largest port.
_PORTS = 65535

#: In the order in which help shows them.
launch_options: list[Callable[..., Any]] = [
    click.option(
        "--distributed",
        is_flag=True,
        help="Share the work among the processes that Slurm, Open MPI or another launcher known to JAX has started.",
    ),
    click.option(
        "--coordinator", metavar="HOST:PORT", help="Without a launcher: address of process 0, with a free port."
    ),
    click.option("--processes", type=int, help="Without a launcher: number of processes."),
    click.option("--process-id", type=int, help="Without a launcher: which of them this is, from 0."),
]


def keep_to_processor() -> None:
    """Run programs on the processor, unless JAX_PLATFORMS names a device, or JAX was imported before, by a caller in Python."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


@dataclasses.dataclass(frozen=True)
class Launch:
    """How processes find one another.

    Attributes:
        coordinator: HOST:PORT of process 0; None: a launcher that JAX knows says all three.
        processes: how many there are.
        process_id: which one this is, from 0.

    Raises:
        InputError: one of the three without the others, or one that cannot be meant.
    """

    coordinator: str | None = None
    processes: int | None = None
    process_id: int | None = None

    def __post_init__(self) -> None:
        given = {"--coordinator": self.coordinator, "--processes": self.processes, "--process-id": self.process_id}
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == len(given):
            return
        if missing:
            raise InputError(
                f"{' and '.join(missing)} did not come; give all of {', '.join(given)}, or --distributed alone under a launcher"
            )
        assert self.coordinator is not None
        assert self.processes is not None
        assert self.process_id is not None
        host, _, port = self.coordinator.rpartition(":")
        if not host or not (port.isdecimal() and 0 < int(port) <= _PORTS):
            raise InputError(
                f"--coordinator is {self.coordinator!r}; give address and free port of process 0, as in 10.0.0.1:1234"
            )
        if self.processes < 1:
            raise InputError(f"--processes is {self.processes}; it must be at least 1")
        if not 0 <= self.process_id < self.processes:
            raise InputError(
                f"--process-id is {self.process_id}; {self.processes} processes are numbered 0 to {self.processes - 1}"
            )


def launch_of(flags: dict[str, Any]) -> Launch | None:
    """The launch that flags ask for, which are taken out of them; None: this process works alone.

    Raises:
        InputError: see `Launch`.
    """
    wanted = flags.pop("distributed", False)
    given = {name: flags.pop(name, None) for name in ("coordinator", "processes", "process_id")}
    return Launch(**given) if wanted or any(value is not None for value in given.values()) else None


def study_command(study: Study) -> click.Command:
    """The command of a study; modules that do its work are imported when it is called."""

    return _StudyCommand(study)


#: So many settings beside the first ones are shown with them.
_FEW = 10


#: Key of a context: whether its help shows all settings.
_ALL = "jaxspec.help_all"


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_help_all = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all settings and exit.",
)


class _StudyCommand(Command):
    """The command of a study, whose help shows what matters first, and whose argument may be a word that stands for another.

    Its options are made when they are asked for: a list of commands needs none of them, nor the registries that they name.
    """

    def __init__(self, study: Study):
        super().__init__(study.name, help=study.help, callback=functools.partial(_run, study))
        self._study = study
        #: Such a word -> "module:command".
        self.subcommands: Mapping[str, str] = study.subcommands

    @property
    def params(self) -> list[click.Parameter]:
        """Argument and options."""
        return self._made

    @params.setter
    def params(self, value: list[click.Parameter]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What Click gives before there are any."""

    @functools.cached_property
    def _made(self) -> list[click.Parameter]:
        def call() -> None: ...

        for decorate in reversed(_parameters(self._study)):
            call = decorate(call)
        return list(reversed(call.__click_params__))  # pyright: ignore[reportFunctionMemberAccess] - where Click keeps them

    @functools.cached_property
    def headings(self) -> dict[str, str]:
        """Setting -> heading of its group in `--help-all`; those that `--help` shows have none."""
        study = self._study
        fields = {field.name for field in fields_of(study.config)} - {*FIRST, *study.first}
        kinds = [kind for kind in reversed(study.config.__mro__) if issubclass(kind, Settings)]
        heading = lambda kind: vars(kind).get("heading", Settings.heading)
        own = {name: heading(kind) for kind in kinds for name in vars(kind).get("__annotations__", ())}
        rest = {name: heading for name, heading in own.items() if name in fields}
        if study.shared or study.meshed:
            launch = ("distributed", *(field.name for field in dataclasses.fields(Launch)))
            rest |= dict.fromkeys(launch, "Several processes")
        return rest if len(rest) > _FEW else {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """All parameters, `--help-all` before `--help`."""
        inherited = super().get_params(ctx)
        return [*inherited[:-1], _help_all, inherited[-1]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options in groups; only those without a heading, unless `--help-all` came."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(self.headings.get(parameter.name or "", "Options"), []).append(record)
        first = groups.pop("Options")
        with formatter.section("Options"):
            formatter.write_dl(first)
        if not groups:
            return
        if not ctx.meta.get(_ALL):
            formatter.write_paragraph()
            formatter.write_text(f"{sum(map(len, groups.values()))} more settings: {ctx.command_path} --help-all")
            return
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in self.subcommands:
            inner: click.Command = load_object(self.subcommands[args[0]])
            return inner.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _parameters(study: Study) -> list[Any]:
    """Argument and options, in the order in which help shows them."""
    parameters: list[Any] = []
    if study.argument:
        more = {"metavar": f"[{study.argument_name.upper()}]", "required": False, "shell_complete": words_or_files(())}
        parameters.append(click.argument(study.argument, **more))
    if study.config_argument:
        complete = words_or_files(study.subcommands)
        more = {"metavar": study.config_argument, "required": False, "shell_complete": complete}
        parameters.append(click.argument("config_file", type=click.Path(), **more))
    if study.example:
        parameters.append(
            click.option("--example", is_flag=True, help=f"Print {study.example_of} to begin with, and stop.")
        )
    if study.examples:
        parameters.append(_choice_of_examples(list(study.examples)))
    parameters.append(settings_options(study.config, without=(study.argument,)))
    if study.out is not None:
        parameters.append(out_option(study.out.what, study.out.default, *study.out.names, check=study.out.check))
    if not study.config_argument:
        parameters.append(config_option)
    if quick_settings(study.config):
        parameters.append(quick_option(study.config))
    if study.out is not None:
        parameters.append(force_option(study.out.force))
    if study.shared or study.meshed:
        parameters += launch_options
    if study.plot is not None:
        parameters.append(plot_option(study.plot.what))
    return [*parameters, json_option]


def _choice_of_examples(names: list[str]) -> Any:
    """`--example [NAME]`."""
    return click.option(
        "--example",
        type=click.Choice(names),
        is_flag=False,
        flag_value=names[0],
        help="Print settings to begin with, and stop; without a name the first.",
    )


def _run(
    study: Study,
    *,
    json_file: str | None,
    config_file: str | None = None,
    out: str | None = None,
    force: bool = False,
    quick: bool = False,
    plot: str | None = None,
    example: bool | str | None = None,
    **flags: Any,
) -> None:
    launch = launch_of(flags)
    if example:
        if any((config_file, out, force, json_file, launch, *flags.values())):
            raise InputError(f"--example prints a file of {study.example_of} and stops; leave everything else out")
        click.echo(study.examples.get(str(example), study.example), nl=False)
        return
    if study.config_argument and config_file is None:
        raise InputError(
            f"no {study.config_argument} came; give a file of settings: jaxspec {study.name} --example prints one to begin with"
        )
    if study.on_processor:
        keep_to_processor()
    config = resolve(study.config, flags, config_file, quick)
    if json_file or plot:
        from jaxspec.runs.directory import kept_files
        from jaxspec.runs.inputs import input_files

        read = [*input_files(config).values(), *([] if config_file is None else [config_file])]
        kept = [] if study.out is None else kept_files(study.name, config, out)
        check_apart({"--json": json_file, "--plot": plot}, read, kept=kept)

    from jaxspec.report.terminal import new_console
    from jaxspec.runs.progress import Reporter

    helps = False
    if launch is not None:
        from jaxspec.runs.processes import start_processes

        helps = start_processes(**vars(launch)).index > 0
    heading = None if study.announce is None else f"jaxspec {study.name}: {study.announce(config)}"
    reporter = Reporter(new_console(stderr=True, quiet=helps), heading=heading)
    writes: dict[str, Any] = {} if study.out is None else {"out": out, "force": force, "reporter": reporter}
    run = load_object(study.run)
    # Traces are many objects, all of them in use: looking through them for garbage takes a tenth of a short command.
    gc.set_threshold(_NEW_OBJECTS)
    with _compiling(reporter) as begins:
        if "checked" in inspect.signature(run).parameters:
            writes["checked"] = begins
        results = run(config, **writes)
    if helps:  # process 0 shows the result
        return
    draws = []
    if plot and study.plot is not None:
        from jaxspec.report.figure_style import save_figure

        draws = [lambda drawn=study.plot.draw: save_figure(load_object(drawn)(results), plot)]
    keeps = study.out is not None and study.out.keeps_result
    print_shown(load_object(study.present)(results), json_file, reporter, draws=draws, keeps=keeps)


@contextlib.contextmanager
def _compiling(reporter: Reporter) -> Iterator[Callable[[], None]]:
    """Say what a command without progress waits for, where it takes longer than a second once its inputs are known to be good:
    it then calls what this gives."""
    timer = threading.Timer(_PATIENCE_S, reporter.line, ["compiling ..."])
    timer.daemon = True
    try:
        yield timer.start
    finally:
        timer.cancel()


def print_shown(
    shown: Shown,
    json_file: str | None,
    reporter: Reporter,
    *,
    draws: Iterable[Callable[[], object]] = (),
    keeps: bool = True,
) -> None:
    """Write --json and figures, and print a result.

    Args:
        draws: each writes a figure.
        keeps: whether a run directory has the result.
    Raises:
        InputError: a file that could not be written; the others are, and the result is printed.
    """

    def prints() -> None:
        from jaxspec.report.terminal import say, show

        for line in shown.first:
            say(line)
        show(*shown.tables)
        for command in shown.commands:
            click.echo(command)
        for line in shown.lines:
            say(line)
        if shown.files:
            reporter.line(shown.files)

    writes = [lambda: write_json(json_file, shown.result), *draws]
    give_out(writes, prints, kept=RUN_KEEPS_IT if keeps else "")
