import re

import pytest
from tune_report_samples import parse, table_rows

pytestmark = pytest.mark.study


def test_page_is_well_formed_and_asks_nobody_for_anything(page):
    root = parse(page)
    assert page.startswith("<!DOCTYPE html>")
    assert "http://" not in page
    assert "https://" not in page
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "link", "iframe", "img", "object", "embed", "base"}
    targets = [v for e in root.iter() for k, v in e.attrib.items() if k in ("href", "src")]
    assert targets
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    assert not re.findall(r"url\((?!#)", page)
    assert "@import" not in page
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    policy = root.find(".//meta[@http-equiv='Content-Security-Policy']")
    assert policy.attrib["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_every_number_of_the_table_stands_beside_its_status(page):
    assert table_rows(parse(page)) == {
        "speedup vs bf16 AR": [f"{x} predicted" for x in ("1.93x", "2.04x", "2.09x", "2.33x")],
        "speedup vs stored AR": [f"{x} predicted" for x in ("1.69x", "1.75x", "1.77x", "1.96x")],
        "alpha_token": [f"{x} measured" for x in ("0.952", "0.931", "0.935", "0.948")],
        "alpha_fraction": [f"{x} measured" for x in ("0.851", "0.796", "0.778", "0.814")],
        "bits per weight, draft": [f"{x} measured" for x in ("5.11", "4.22", "4.13", "3.64")],
        "bits per weight, verification": [f"{x} measured" for x in ("13.91", "13.52", "13.43", "13.34")],
        "KL to the target": [f"{x} measured" for x in ("0.0391", "0.0310", "0.0302", "0.0254")],
        "bits per KV element, draft": [f"{x} measured" for x in ("9.93", "8.04", "7.55", "6.86")],
        "draft length": ["5", "4", "6", "7"],
        "tokens per cycle, predicted": [f"{x} predicted" for x in ("5.26", "4.98", "5.67", "5.89")],
        "tokens per cycle, counted": [
            f"{x} measured" for x in ("5.21 ± 0.06", "4.95 ± 0.07", "5.64 ± 0.08", "5.84 ± 0.09")
        ],
        "gap between the two": [f"{x} measured" for x in ("0.8", "0.4", "0.4", "0.5")],
        "weights": ["40 % pruned, 4 bits cut"] * 3 + ["10 to 55 % pruned, 0 to 7 bits cut"],
        "keys and values": ["5 % pruned, 1 bit cut"] * 4,
    }
