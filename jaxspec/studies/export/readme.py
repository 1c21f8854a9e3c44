"""What an exported directory holds besides weights: its files, and a README for engines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

import jinja2

from jaxspec.cleanup import PENDING
from jaxspec.errors import InputError
from jaxspec.formats.shard_index import INDEX_FILE, read_json_object
from jaxspec.models.layer_files import LayeredTensors, index_json, plan_shards, write_shard
from jaxspec.output_places import check_folder_place
from jaxspec.partial_files import CONTAINER_SUFFIX, PartialFiles, to_json
from jaxspec.report.formatting import fixed, times
from jaxspec.results import Quantity
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, SCHEME_FACTS
from jaxspec.studies.engine_flags import Engine
from jaxspec.studies.export.result import ExportResult

#: The manifest of an export, which tells it from other folders.
MANIFEST = "jaxspec_export.json"


#: Folder in an export that holds the target, where the draft belongs to no checkpoint that exists.
TARGET = "target"


def check_place(out: Path, *, force: bool, kept: Mapping[str, Path]) -> None:
    """Where an export may be written: a folder that is not there, is empty, or, by `force`, holds an earlier export.

    Args:
        kept: what is never written into, by what it is.
    Raises:
        InputError: another place.
    """
    check_folder_place(out, "export")
    for what, path in kept.items():
        for place, verb in ((out, "is"), (out / TARGET, f"has in its folder {TARGET!r}")):
            if os.path.exists(place) and os.path.exists(path) and os.path.samefile(place, path):
                raise InputError(f"{str(out)!r} {verb} {what}; give another --out")
    there = sorted(os.listdir(out)) if os.path.isdir(out) else []
    if MANIFEST in there and not force:
        raise InputError(f"{str(out)!r} holds an export already; give another --out, or --force to replace it")
    if there and MANIFEST not in there:
        raise InputError(
            f"{str(out)!r} holds {there[0]!r} and is no earlier export; give --out a folder that is empty or not there"
        )


def write_directory(
    out: Path,
    networks: Mapping[str, LayeredTensors],
    finish: Callable[[dict[str, int]], dict[str, bytes]],
    *,
    shard_bytes: int,
    on_bytes: Callable[[int, str], None],
) -> dict[str, int]:
    """Write the weights, shard by shard, and then the files beside them; each gets its name once all are whole.

    Args:
        networks: by the folder within `out` that they are written into, "" for `out` itself; in the order of writing.
        finish: from name and bytes of the files of weights, index included, to the contents of all others, by name.
    Returns:
        name -> bytes of all files.
    Raises:
        InputError: the folder cannot be made.
    """
    sizes: dict[str, int] = {}
    indices: dict[str, bytes] = {}
    with PartialFiles() as files:
        try:
            files.make_folder(out)
        except OSError as error:
            raise InputError(f"{out} cannot be made a folder ({error.strerror}); give another --out") from error
        for folder, tensors in networks.items():
            shards, values = plan_shards(tensors.forms, shard_bytes), tensors.values()
            for shard in shards:
                name = str(PurePosixPath(folder) / shard.name)
                with files.add(out / name).open("wb") as file:
                    write_shard(file, shard, values, on_bytes=on_bytes)
                    sizes[name] = file.tell()
            if len(shards) > 1:
                indices[str(PurePosixPath(folder) / INDEX_FILE)] = to_json(index_json(shards)).encode()
        others = indices | finish(sizes | {name: len(content) for name, content in indices.items()})
        # Without a configuration no engine opens a folder: what was there stops being a network before its files are
        # exchanged, and what comes begins to be one with its last files.
        for name in sorted(others, key=_is_config):
            files.add(out / name).write_bytes(others[name])
            sizes[name] = len(others[name])
        with PENDING.lock:
            remove_earlier(out)
            files.commit()
    return sizes


def remove_earlier(out: Path) -> None:
    """Remove the files of an earlier export, its configuration first."""
    if not (out / MANIFEST).is_file():
        return
    listed = read_json_object(out / MANIFEST).get("files")
    names = {name for name in listed if isinstance(name, str)} if isinstance(listed, dict) else set()
    for name in sorted(names | {MANIFEST}, key=lambda name: (not _is_config(name), name)):
        # What a manifest that somebody changed names outside its folder stays.
        if (out / name).resolve().is_relative_to(out.resolve()):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                (out / name).unlink()
    with contextlib.suppress(OSError):  # it has something else in it, or is not there
        (out / TARGET).rmdir()


def _is_config(name: str) -> bool:
    return PurePosixPath(name).name == "config.json"


def readme(result: ExportResult, engines: Sequence[Engine], priced_on: str = "") -> str:
    """The page of an export. Args: priced_on: device and engine of the predicted speed of a model's export."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    text = Path(__file__).with_name("readme.md.j2").read_text(encoding="utf-8")
    functions = {"fixed": fixed, "times": times, "with_error": _with_error}
    return environment.from_string(text).render(
        result=result,
        engines=engines,
        priced_on=priced_on,
        facts=SCHEME_FACTS.get(result.scheme or "", SCHEME_FACTS[DEFAULT_SCHEME_NAME]),
        suffix=CONTAINER_SUFFIX,
        target_folder=TARGET,
        paths={part: PurePath(str(getattr(result, part))) for part in ("target", "checkpoint")},
        **functions,
    )


def _with_error(number: Quantity[float]) -> str:
    return fixed(number.number, 3) + ("" if number.standard_error is None else f" ± {fixed(number.standard_error, 3)}")
