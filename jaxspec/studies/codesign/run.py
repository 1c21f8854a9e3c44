"""`jaxspec codesign`: climb from several places, harden what is best, judge it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tomli_w
from scipy.stats import qmc

from hwmodels import Device, catalog
from hwmodels.analysis.design_point import leaf_names
from hwmodels.analysis.uncertainty.kernel_errors import known_scatter
from hwmodels.catalog.device_entries import parse_device
from jaxspec.errors import InputError, one_line
from jaxspec.partial_files import read_json, to_json, write_text
from jaxspec.report.assumptions import device_facts
from jaxspec.results import Quantity, calibrated, given, predicted
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.execute import Outputs, execute_run
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect
from jaxspec.studies.codesign.config import DEVICE_FILE, CodesignConfig
from jaxspec.studies.codesign.problem import DesignNumbers, Problem, make_problem
from jaxspec.studies.codesign.result import BudgetUse, CodesignResult, DesignRow, LawRow, StartRow, VariableRow
from jaxspec.studies.codesign.search import (
    ALLOWED_EXCESS,
    Climb,
    Hardened,
    Judged,
    best_that_differ,
    climb,
    draw,
    harden,
    judge,
    refuse_free_lunches,
)
from jaxspec.studies.codesign.view import write_codesign_report
from jaxspec.studies.engine_pricing import engine_scatter, engine_used
from jaxspec.studies.feasibility import kernel_notes
from jaxspec.studies.given_acceptance import law_facts
from jaxspec.studies.release import release_notes

_GIVEN = "given: a co-design problem"


def changed_device_text(
    device: str,
    changed: Mapping[str, float],
    *,
    source: str,
    given: Mapping[str, float] | None = None,
    technology: Mapping[str, float | str] | None = None,
) -> str | None:
    """A device's file with other numbers.

    Args:
        device: catalog name or TOML file.
        changed: dotted name within the device -> number.
        source: of these numbers, in words.
        given: further numbers, which the problem gave.
        technology: numbers and texts of a [technology] in place of the file's own, or of its [chip]; likewise.
    Returns:
        None where a file cannot say such a number, as those of measured kernels.
    """
    document = catalog.document_of("device", device)
    document["title"] = f"{document['title']}, co-designed"
    entry = lambda value, source=_GIVEN: {"value": float(value), "source": source}
    places = {name: entry(value) for name, value in (given or {}).items()}
    places |= {name: entry(value, source) for name, value in changed.items()}
    if technology is not None:
        document.pop("chip", None)
        document["technology"] = {k: v if isinstance(v, str) else entry(v) for k, v in technology.items()}
    try:
        for name, place in places.items():
            _put(document, name.split("."), place)
        text = "\n".join(_lines(document, "")) + "\n"
        parsed = parse_device(text, where=device).device
    except (ValueError, LookupError):  # a place that the file does not have, or a number that it may not say
        return None
    return text if places.keys() <= set(leaf_names(parsed)) else None


def _put(table: Any, path: list[str], entry: dict[str, Any]) -> None:
    for name in path[:-1]:
        table = table[int(name)] if isinstance(table, list) else table.setdefault(name, {})
    table[path[-1]] = entry


def _lines(table: Mapping[str, Any], prefix: str) -> list[str]:
    """A number with its source on one line, then the tables within."""
    tables = {key: value for key, value in table.items() if isinstance(value, dict) and "source" not in value}
    several = {key: value for key, value in table.items() if isinstance(value, list) and value and _all_tables(value)}
    lines = [_line(key, value) for key, value in table.items() if key not in {*tables, *several}]
    for key, inner in tables.items():
        lines += ["", f"[{prefix}{key}]", *_lines(inner, f"{prefix}{key}.")]
    for key, rows in several.items():
        for row in rows:
            lines += ["", f"[[{prefix}{key}]]", *_lines(row, f"{prefix}{key}.")]
    return lines


def _all_tables(rows: list[Any]) -> bool:
    return all(isinstance(row, dict) for row in rows)


def _line(key: str, value: Any) -> str:
    if not isinstance(value, dict):
        return tomli_w.dumps({key: value}).strip()
    return f"{key} = {{ {', '.join(_line(name, inner) for name, inner in value.items())} }}"


def design_notes(problem: Problem, values: np.ndarray) -> dict[str, Any]:
    """The fields of `kernel_notes` for what some designs read, with sentences on [set] among the notes.

    Args:
        values: "design variable"; the first one is the design before.
    """
    tree = problem.tree(values[0])
    read, batches = problem.footprints(values), [float(tree["workload"].batch)]
    context = float(tree["workload"].context_tokens) + 1.0
    shape, texts = tree["architecture"], {problem.config.architecture: context}
    kernel_facts = kernel_notes(tree["device"], read, batches=batches, architecture=shape, texts=texts)
    about = release_notes(problem.config.architecture)
    return kernel_facts | {"notes": [*about, *kernel_facts["notes"], *inert_settings(problem, values)]}


def inert_settings(problem: Problem, values: np.ndarray) -> list[str]:
    """A sentence for each number of [set] with twice and half of which all these designs have the same numbers.

    Knobs of the draft are not among them: acceptance depends on those that are known, and others change what is read.
    """
    plain = _priced(problem, values)
    places = {name: place for place, name in enumerate(leaf_names(problem.tree(values[0])))}
    notes = []
    for name, value in problem.config.set.items():
        if name.startswith("draft."):
            continue
        tried = (2.0 * value, 0.5 * value) if value else (1.0,)
        priced = [_priced(_with_leaf(problem, places[name], number), values) for number in tried]
        if all(np.array_equal(plain, other, equal_nan=True) for other in priced):
            words = " and ".join(f"{number:g}" for number in tried)
            notes.append(
                f"no number of the design before and of the one found depends on set.{name}: with {words} in its place they "
                "are the same"
            )
    return notes


def _with_leaf(problem: Problem, place: int, number: float) -> Problem:
    """The problem with another number in its tree."""
    leaves = list(problem.model.leaves)
    leaves[place] = np.float32(number)
    return dataclasses.replace(problem, model=dataclasses.replace(problem.model, leaves=tuple(leaves)))


def _priced(problem: Problem, values: np.ndarray) -> np.ndarray:
    """All numbers of designs, "number design"; NaN for what is not known."""
    columns = jax.tree.leaves(problem.numbers(values))
    return np.stack([np.asarray(column, float) for column in columns])


#: Main numbers of a result, for `jaxspec runs`.
HEADLINE = ("gain", "after.tokens_per_s", "after.area_mm2", "after.power_w")


#: Said where errors of times are known.
_NO_INTERVALS = "no intervals: errors of times were measured on the device as it is, not on designs with other numbers"


#: Climbs whose ends are hardened.
_HARDENED = 3


#: Begins the name of a number of the device.
_DEVICE = "device."


def codesign(
    config: CodesignConfig, *, out: str | Path | None = None, force: bool = False, reporter: Reporter | None = None
) -> CodesignResult:
    """Solve a problem into its run directory: result.json, report.html, figures, proposal.toml. A finished one is reprinted.

    Returns:
        what result.json holds. "No design keeps every limit" is an answer.
    Raises:
        InputError: a name or number that cannot be used, a variable that costs nothing, or a directory of another problem.
    """
    problem = cache(lambda: checked_problem(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        return lambda: _run(problem(), directory, reporter).plain()

    expect(CodesignConfig, config)
    page = lambda result, path: write_codesign_report(CodesignResult.from_plain(result), path)
    how: dict[str, Any] = dict(out=out, force=force, reporter=reporter)
    outputs = Outputs(page=page, headline=HEADLINE)
    result, _ = execute_run("codesign", config, prepare, check=problem, outputs=outputs, **how)
    return CodesignResult.from_plain(result)


def checked_problem(config: CodesignConfig) -> Problem:
    """A problem in which nothing is free. Raises InputError: see `make_problem` and `refuse_free_lunches`."""
    problem = make_problem(config)
    places = qmc.LatinHypercube(len(problem.before), rng=np.random.default_rng(config.seed)).random(problem.batch)
    places[0] = problem.variables.places(problem.before)
    refuse_free_lunches(problem, places)
    return problem


def drawn_designs(problem: Problem) -> np.ndarray:
    """The best designs that were drawn and differ, "design variable", as many as there are starts."""
    config = problem.config
    drawn = draw(problem, config.draws, np.random.default_rng(config.seed))
    return best_that_differ(problem, drawn, config.starts)


def start_places(problem: Problem, drawn: np.ndarray) -> np.ndarray:
    """Where climbs begin, "start variable": at the design as it is, then at the best drawn ones."""
    values = np.concatenate([problem.before[None], drawn])[: problem.config.starts]
    return problem.variables.places(values)


def proposal(problem: Problem, climbs: list[Climb], drawn: np.ndarray) -> Hardened:
    """The best design that can be built near the best climbs, or near the best of some drawn designs."""
    order = sorted(range(len(climbs)), key=lambda i: _rank(climbs[i]))
    return harden(problem, np.stack([climbs[i].place for i in order[:_HARDENED]]), drawn=drawn)


def _rank(one: Climb) -> tuple[bool, float]:
    """Climbs that end within the limits first, by objective; then by excess."""
    good = [objective for objective, excess in one.path if excess <= 0]
    return (False, -max(good)) if good else (True, min(excess for _, excess in one.path))


def _run(problem: Problem, directory: RunDirectory, reporter: Reporter) -> CodesignResult:
    reporter.line(f"drawing {problem.config.draws} designs")
    with reporter.alive():
        drawn = drawn_designs(problem)
    climbs = _climbs(problem, drawn, directory.path / "checkpoints" / "climbs.json", reporter)
    reporter.line("rounding to what can be built")
    with reporter.alive():
        hardened = proposal(problem, climbs, drawn)
        judged = judge(problem, hardened.values)
        result = _result(problem, climbs, hardened, judged, directory)
        _write_device(problem, result, directory.path / DEVICE_FILE)
    return result


def _write_device(problem: Problem, result: CodesignResult, path: Path) -> None:
    """The proposed device, for every other command; none where no design keeps the limits, or no file can say it.

    Without the problem's technology where a file with it would leave something free, as memories without energies.
    """
    best, given = (
        {name.removeprefix(_DEVICE): value for name, value in numbers.items() if name.startswith(_DEVICE)}
        for numbers in ({row.name: row.after.known for row in result.variables}, problem.config.set)
    )
    node = problem.config.technology
    nodes = [None] if node is None else [dataclasses.asdict(node), None]
    source, device = "derived: jaxspec codesign", problem.config.device
    texts = (changed_device_text(device, best, given=given, technology=one, source=source) for one in nodes)
    text = next((text for text in texts if text is not None), None)
    if result.after.feasible and text is not None:
        write_text(path, text)


def _climbs(problem: Problem, drawn: np.ndarray, kept: Path, reporter: Reporter) -> list[Climb]:
    """All climbs, those that a stopped run kept among them; starts that climb together are kept together."""
    climbs = _kept(kept)
    places = start_places(problem, drawn)
    with reporter.bar("climbs", len(places)) as bar:
        if climbs:
            bar.jump(len(climbs), "kept from before")
        while len(climbs) < len(places):
            part = places[len(climbs) : len(climbs) + problem.batch]
            climbs += climb(problem.smooth, part, iterations=problem.config.iterations, size=problem.batch)
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, to_json([{"place": one.place.tolist(), "path": one.path} for one in climbs]))
            bar.jump(len(climbs), f"{_best(problem, climbs)}")
    return climbs


def _kept(path: Path) -> list[Climb]:
    """Climbs of a stopped run; none where nothing was kept. Raises InputError: the file is damaged."""
    if not path.is_file():
        return []
    try:
        climbs = read_json(path)
        return [Climb(np.array(one["place"]), [tuple(step) for step in one["path"]]) for one in climbs]
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(
            f"climbs {str(path)!r} are damaged ({reason}); remove that file, and the same command climbs again"
        ) from error


def _best(problem: Problem, climbs: list[Climb]) -> str:
    good = [objective for one in climbs for objective, excess in one.path if excess <= 0]
    return f"{np.exp(max(good)):.5g} {problem.config.objective}" if good else "none keeps every limit yet"


def _result(
    problem: Problem, climbs: list[Climb], hardened: Hardened, judged: Judged, directory: RunDirectory
) -> CodesignResult:
    config, variables = problem.config, problem.variables
    before, after = (_row(problem, values) for values in (problem.before, hardened.values))
    objective = lambda row: getattr(row, config.objective).known
    good = [value for one in climbs for value, excess in one.path if excess <= 0]
    number = lambda value: None if not np.isfinite(value) else float(value)
    design_facts = design_notes(problem, np.stack([problem.before, hardened.values]))
    return CodesignResult(
        architecture=config.architecture,
        device=config.device,
        scheme=config.scheme,
        objective=config.objective,
        engine=engine_used(config.engine, config.device),
        gain=predicted(objective(after) / objective(before) if after.feasible else None),
        before=before,
        after=after,
        variables=[
            VariableRow(
                name=name,
                low=float(variables.low[i]),
                high=float(variables.high[i]),
                scale="log" if variables.log[i] else "linear",
                step=variables.steps[i],
                before=given(float(problem.before[i])),
                after=predicted(float(hardened.values[i])),
                elasticity=predicted(float(judged.elasticity[i])),
                per_mm2=predicted(number(judged.per_mm2[i])),
                per_w=predicted(number(judged.per_w[i])),
                at=judged.ends[i],
            )
            for i, name in enumerate(variables.names)
        ],
        budgets=[
            BudgetUse(
                name=name,
                limit=given(limit),
                before=getattr(before, name),
                after=getattr(after, name),
                active=getattr(after, name).known > limit * (1 - 5e-3),
                multiplier=predicted(judged.multipliers[name] if after.feasible else None),
            )
            for name, limit in problem.limits.items()
        ],
        costs={name: dataclasses.asdict(cost) for name, cost in config.costs.items()},
        law=LawRow(**law_facts(problem.acceptance)),
        relaxed_objective=predicted(float(np.exp(max(good))) if good else None),
        starts=[
            StartRow(objective=[v for v, _ in one.path], excess=[excess for _, excess in one.path]) for one in climbs
        ],
        questions=sum(len(one.path) for one in climbs) + hardened.questions,
        evaluations=config.draws + hardened.evaluations,
        device_data=device_facts(config.device, config)["device_data"],
        directory=str(directory.path),
        inputs=directory.inputs,
        kernel_widths=design_facts["kernel_widths"],
        notes=[*design_facts["notes"], *_notes(config, problem.device)],
    )


def _notes(config: CodesignConfig, device: Device) -> list[str]:
    """Why numbers of a device whose times are known to err have no intervals here."""
    scatter = engine_scatter(config.engine, device=device)
    return [] if known_scatter(device, scatter) is None else [_NO_INTERVALS]


def _row(problem: Problem, values: np.ndarray) -> DesignRow:
    """A design's numbers, exactly; acceptance is calibrated where its law was fitted."""
    numbers: DesignNumbers = problem.numbers(values[None])
    quantities: dict[str, Quantity] = {
        name: predicted(float(value[0])) for name, value in vars(numbers).items() if value is not None
    }
    # A die of nothing that says what it takes is not one of 0 mm2.
    unknown = [
        name for name in ("area_mm2", "power_w", "price") if not quantities[name].known and name not in problem.limits
    ]
    quantities |= dict.fromkeys(unknown, predicted(None))
    if problem.acceptance.status == "calibrated":
        quantities["acceptance"] = calibrated(quantities["acceptance"].known)
    excess = max(np.log(quantities[name].known / limit) for name, limit in problem.limits.items())
    return DesignRow(feasible=bool(excess <= ALLOWED_EXCESS), **quantities)
