"""The commands that are studies: a folder each, and a line here."""

from __future__ import annotations

from jaxspec.studies.study import Study, load_object

__all__ = ["STUDIES", "find_study"]

#: Command -> "module:name" of its `Study`, in the order of `jaxspec --help`.
STUDIES = {
    "tune": "jaxspec.studies.tune.command:TUNE",
    "evaluate": "jaxspec.studies.evaluate.command:EVALUATE",
    "tree": "jaxspec.studies.tree.command:TREE",
    "predict": "jaxspec.studies.predict.command:PREDICT",
    "sweep": "jaxspec.studies.sweep.command:SWEEP",
    "codesign": "jaxspec.studies.codesign.command:CODESIGN",
    "compare": "jaxspec.studies.compare.command:COMPARE",
    "scale": "jaxspec.studies.scale.command:SCALE",
    "advise": "jaxspec.studies.advise.command:ADVISE",
    "serve": "jaxspec.studies.serve.command:SERVE",
    "pack": "jaxspec.studies.pack.command:PACK",
    "calibrate": "jaxspec.studies.calibrate.command:CALIBRATE",
    "export": "jaxspec.studies.export.command:EXPORT",
}


def find_study(name: str) -> Study:
    """The study behind a command."""
    return load_object(STUDIES[name])
