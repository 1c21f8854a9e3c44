"""What test_tune_report and test_tune_report_odd share."""

import re
import xml.etree.ElementTree as ET

from made_results import read

from jaxspec.studies.tune import view


def report_html(entries, *more, **options):
    return view.report_html([read(entry) for entry in entries], *more, **options)


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
