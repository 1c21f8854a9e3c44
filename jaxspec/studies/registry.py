"""The commands that are studies: a folder each, and a line here."""

from __future__ import annotations

from jaxspec.studies.study import Study, load_object

__all__ = ["STUDIES", "find_study"]

#: Command -> "module:name" of its `Study`, in the order of `jaxspec --help`.
STUDIES = {
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
}


def find_study(name: str) -> Study:
    """The study behind a command."""
    return load_object(STUDIES[name])
