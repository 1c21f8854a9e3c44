"""What tests of the report share."""

import pytest
from tune_report_samples import report_html

from jaxspec.studies.tune import view


@pytest.fixture
def text_only(monkeypatch):
    """For tests of what is written: figures take most of the time."""
    monkeypatch.setattr(view, "drawings", lambda entry, metrics: {})


@pytest.fixture(scope="module")
def page(make_entry, make_metrics):
    return report_html([make_entry()], make_metrics(), config_toml='model = "embedded"\n# a < b\n')
