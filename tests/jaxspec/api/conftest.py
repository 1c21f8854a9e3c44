"""A toy study in the registry, and an empty working directory."""

import pytest

from jaxspec.studies.study import STUDIES


@pytest.fixture(autouse=True)
def _toy(monkeypatch, tmp_path):
    monkeypatch.setitem(STUDIES, "toy", "toy_bench:TOY")
    monkeypatch.chdir(tmp_path)
