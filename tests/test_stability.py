"""What the page *Stable interfaces* promises is still there: names, flags and JSON keys of `tests/golden/interface.json`.

`python tests/test_stability.py` writes that file anew, which a release does once: what it loses takes a new major version.
"""

import dataclasses
import importlib
import inspect
import json
import typing
from pathlib import Path

import hwmodels
import jaxspec as js
from jaxspec.results.records import Record, Result
from jaxspec.studies.study import STUDIES, find_study

GOLDEN = Path(__file__).parent / "golden" / "interface.json"


def records_in(kind: object) -> list[type[Record]]:
    """Records that a field's annotation names."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return [kind]
    return [record for argument in typing.get_args(kind) for record in records_in(argument)]


def keys(record: type[Record], above: str = "", within: tuple[type, ...] = ()) -> set[str]:
    """Keys of a record's JSON with those of the records in it, as paths."""
    kinds, listed = typing.get_type_hints(record), set()
    for field in dataclasses.fields(record):
        listed |= {f"{above}{name}" for name in (field.name, field.metadata.get("error")) if name}
        for inner in records_in(kinds[field.name]):
            if inner not in within:
                listed |= keys(inner, f"{above}{field.name}.", (*within, record, inner))
    return listed


def results() -> dict[str, list[str]]:
    """Class of each result that a study writes -> its keys."""
    places = list(Path(js.__file__).parent.rglob("result.py"))
    modules = [path.relative_to(Path(js.__file__).parents[1]).with_suffix("").as_posix() for path in places]
    classes = [
        one
        for module in map(importlib.import_module, (name.replace("/", ".") for name in modules))
        for _, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, Result) and one.__module__ == module.__name__
    ]
    return {one.__name__: sorted(keys(one)) for one in classes}


def interface() -> dict[str, dict[str, list[str]]]:
    """All that is promised."""
    arguments = {one.__name__: [f.name for f in dataclasses.fields(one)] for one in (js.Case, js.Plan, js.Workload)}
    return {
        "names": {"jaxspec": sorted([*js.__all__, *STUDIES.names()]), "hwmodels": sorted(hwmodels.__all__)},
        "settings": {
            study.name: [f.name for f in dataclasses.fields(study.config)] for study in map(find_study, STUDIES.names())
        },
        "fields": arguments,
        "results": results(),
    }


def lost(promised: dict[str, dict[str, list[str]]], present: dict[str, dict[str, list[str]]]) -> list[str]:
    """What was promised and is absent."""
    return [
        f"{part} of {owner}: {name}"
        for part, owners in promised.items()
        for owner, names in owners.items()
        for name in names
        if name not in present[part].get(owner, ())
    ]


def test_nothing_that_is_promised_is_lost():
    assert lost(json.loads(GOLDEN.read_text(encoding="utf-8")), interface()) == []


def test_a_lost_name_a_renamed_key_and_a_dropped_result_are_noticed():
    present = interface()
    promised = json.loads(json.dumps(present))
    present["names"]["jaxspec"].remove("predict")
    present["results"]["TuneResult"].remove("configurations.speedup_vs_bf16_ar")
    del present["results"]["PackResult"]
    missing = lost(promised, present)
    assert missing[:1] == ["names of jaxspec: predict"]
    assert "results of TuneResult: configurations.speedup_vs_bf16_ar" in missing
    assert sum(line.startswith("results of PackResult") for line in missing) == len(promised["results"]["PackResult"])


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(interface(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
