import re
import xml.etree.ElementTree as ET

import pytest
from made_results import read

from jaxspec.report.figures.style import INK, PAPER, figure_svg, inline_svg
from jaxspec.studies.tune import view

pytestmark = pytest.mark.study


def test_the_same_figure_gives_the_same_bytes(make_entry):
    first, second = (figure_svg(view.knobs_figure(read(make_entry(layers=5)))) for _ in range(2))
    assert first == second
    assert "<metadata>" not in first
    assert ET.fromstring(first).tag == "{http://www.w3.org/2000/svg}svg"


def test_inline_element_has_its_own_ids_and_the_pages_colours(make_entry):
    svg = figure_svg(view.acceptance_figure(read(make_entry())))
    assert INK in svg
    element = inline_svg(svg, prefix="a1", label="what it shows")
    root = ET.fromstring(element)
    assert root.tag == "svg"
    assert root.attrib["aria-label"] == "what it shows"
    assert root.attrib["viewBox"].startswith("0 0 648 ")
    ids = [found.attrib["id"] for found in root.iter() if "id" in found.attrib]
    assert len(ids) == len(set(ids))
    assert all(name.startswith("a1-") for name in ids)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', element))
    assert used == set(ids)
    assert len(used) > 10
    assert "http" not in element
    assert INK not in element
    assert PAPER not in element
    assert "currentColor" in element
    assert "var(--paper)" in element
