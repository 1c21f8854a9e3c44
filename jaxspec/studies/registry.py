"""The commands that are studies: a folder each, and a line here, or an entry point of a package."""

from __future__ import annotations

from typing import Any

from jaxspec.registries import Registry, load_object
from jaxspec.studies.study import Study

__all__ = ["STUDIES", "find_study"]


def _accept(name: str, found: Any) -> Study:
    study = load_object(found)
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
        "calibrate": "jaxspec.studies.calibrate.config:CALIBRATE",
        "export": "jaxspec.studies.export.config:EXPORT",
    },
    _accept,
)


def find_study(name: str) -> Study:
    """The study behind a command."""
    return load_object(STUDIES[name])
