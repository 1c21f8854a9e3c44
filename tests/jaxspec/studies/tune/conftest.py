"""What tests of the report share."""

import pytest
from tune_report_samples import report_html


@pytest.fixture(scope="module")
def page(make_entry, make_metrics):
    return report_html([make_entry()], make_metrics(), config_toml='model = "embedded"\n# a < b\n')
