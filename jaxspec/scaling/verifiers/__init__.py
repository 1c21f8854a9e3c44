"""Verifiers: plain functions from texts to scores."""

from jaxspec.scaling.verifiers.judge import compiles, doctests_hold, parses
from jaxspec.scaling.verifiers.sandbox import Limits, Verdict, isolation, run_sandboxed

__all__ = ["Limits", "Verdict", "compiles", "doctests_hold", "isolation", "parses", "run_sandboxed"]
