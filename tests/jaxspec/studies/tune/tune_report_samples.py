"""What test_tune_report and test_tune_report_odd share."""

import re
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from made_results import read

from jaxspec.studies.tune import view


def report_html(entries, metrics, config_toml=""):
    with tempfile.TemporaryDirectory() as place:
        Path(place, "config.toml").write_text(config_toml)
        return view.write_report([read(entry) for entry in entries], metrics, place).read_text()


def parse(page):
    """The page is well-formed XML on purpose, so that a broken tag is an error and not a guess."""
    return ET.fromstring(page)


def words(element):
    return re.sub(r"\s+", " ", " ".join(element.itertext())).strip()


def table_rows(root):
    """Row title -> texts of the cells of the table of configurations."""
    table = root.find(".//table[@class='numbers configurations']")
    return {
        row.find("th").text: [words(cell) for cell in row.findall("td")] for row in table.find("tbody").findall("tr")
    }
