import xml.etree.ElementTree as ET

import pytest
from made_results import read

from jaxspec.report.figure_style import figure_svg
from jaxspec.studies.tune import view

pytestmark = pytest.mark.study


def test_the_same_figure_gives_the_same_bytes(make_entry):
    first, second = (figure_svg(view.knobs_figure(read(make_entry(layers=5)))) for _ in range(2))
    assert first == second
    assert "<metadata>" not in first
    assert ET.fromstring(first).tag == "{http://www.w3.org/2000/svg}svg"
