"""`jaxspec sweep merge`: the shards of a sweep as the one sweep that they are parts of."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.inputs import changed_inputs
from jaxspec.runs.kept import find_run
from jaxspec.runs.progress import Reporter
from jaxspec.runs.unchanged import check_settings_file
from jaxspec.settings.coercion import as_path
from jaxspec.settings.toml import to_toml
from jaxspec.studies.sweep.config import SweepConfig, read_sweep_config, shard_of
from jaxspec.studies.sweep.grid import plan_sweep
from jaxspec.studies.sweep.points_file import POINTS_FILE, check_counts
from jaxspec.studies.sweep.result import SweepResult
from jaxspec.studies.sweep.run import carry_out_sweep, join_points

__all__ = ["merge_sweeps"]


@dataclasses.dataclass(frozen=True)
class _Shard:
    path: Path
    number: int
    shards: int
    whole: SweepConfig
    inputs: dict[str, str]


def merge_sweeps(
    shards: Sequence[str | os.PathLike[str]],
    *,
    out: str | Path | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> SweepResult:
    """Join the run directories of all shards of a sweep into the run directory of the whole sweep.

    File and result are those of the sweep run at once, byte for byte but for the directory's name and times.

    Args:
        shards: run directories, each finished, in any order.
        out, force: of the whole sweep.
    Raises:
        InputError: a directory that is no finished shard, shards of different sweeps, one that is missing or there twice.
    """
    found = _in_order([_shard(as_path("shard", path)) for path in shards])
    config = found[0].whole
    planned = cache(lambda: plan_sweep(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], dict[str, Any]]:
        for shard in found:
            if changed := changed_inputs(shard.inputs, directory.inputs):
                raise InputError(
                    f"{', '.join(changed)} has changed since shard {str(shard.path)!r} was begun; run the shards again"
                )
        grid = planned().grid
        counts = [grid.points_of(grid.shard(shard.number, shard.shards)) for shard in found]
        sources = {shard.path / POINTS_FILE: count for shard, count in zip(found, counts, strict=True)}
        check_counts(sources)
        return lambda: join_points(config, planned(), sources, directory, reporter).plain()

    result, _ = carry_out_sweep(config, prepare, planned, out=out, force=force, reporter=reporter)
    return result


def _shard(path: str) -> _Shard:
    run = find_run(path)
    check_settings_file(run.path)
    config = read_sweep_config(run.path / "config.toml")
    if config.shard is None:
        raise InputError(f"run {path!r} is a whole sweep, not a shard; give the directories of jaxspec sweep --shard")
    if not run.finished:
        raise InputError(f"shard {path!r} is not finished; jaxspec runs resume {path} goes on with it")
    number, shards = shard_of(config.shard)
    return _Shard(run.path, number, shards, dataclasses.replace(config, shard=None), run.inputs)


def _in_order(found: list[_Shard]) -> list[_Shard]:
    """All shards of one sweep, from the first to the last."""
    if not found:
        raise InputError("no shard came; give the run directories of all shards")
    first, by_number = found[0], {}
    for shard in found:
        if to_toml(shard.whole) != to_toml(first.whole) or shard.shards != first.shards:
            raise InputError(
                f"{str(shard.path)!r} is a shard of another sweep than {str(first.path)!r}; merge those of one sweep"
            )
        if shard.number in by_number:
            other = by_number[shard.number].path
            raise InputError(f"shard {shard.number}/{shard.shards} came twice, {str(other)!r} and {str(shard.path)!r}")
        by_number[shard.number] = shard
    missing = [number for number in range(1, first.shards + 1) if number not in by_number]
    if missing:
        some = ", ".join(f"{number}/{first.shards}" for number in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise InputError(f"{len(found)} of {first.shards} shards came; missing are {some}{more}")
    return [by_number[number] for number in sorted(by_number)]
