"""The file that a newcomer begins with: accepted as it is, complete, and honest about defaults."""

import dataclasses
import re
import tomllib

import pytest

from hwmodels import chip_bill
from hwmodels.catalog.device_entries import DEVICE_TEMPLATE, parse_device
from hwmodels.catalog.forms import form_of
from hwmodels.chip.blocks import Technology
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.decoders.decoder import Decoder
from hwmodels.decoders.encoder import Encoder
from hwmodels.device import Chip, Device, ExtraRows, MemoryTier, OnChipPath, Superblocks

WHOLE = DEVICE_TEMPLATE.replace("#~ ", "")
OTHER_CHIP = re.sub(r"\n\[technology\].*?\n\[decoder\]", "\n[decoder]", WHOLE.replace("#= ", ""), flags=re.DOTALL)

#: Table of the template -> the class of its fields.
TABLES = {
    "": Device,
    "memory": MemoryTier,
    "matrix_unit": SystolicUnit,
    "technology": Technology,
    "on_chip_path": OnChipPath,
    "encoder": Encoder,
    "superblocks": Superblocks,
    "extra_rows": ExtraRows,
    "decoder": Decoder,
    "chip": Chip,
}


@pytest.mark.parametrize("text", [DEVICE_TEMPLATE, WHOLE, OTHER_CHIP], ids=["as it is", "every line", "with a chip"])
def test_it_is_a_device(text):
    entry = parse_device(text, where="template")
    device = entry.device
    assert (device.technology is None) == (device.chip is not None) == ("[chip]" in text and text is OTHER_CHIP)
    if device.technology is not None:
        bill = chip_bill(device)
        assert 1e-5 < float(bill.area_m2) < 1e-3
        assert float(bill.power_w) > 1.0


def test_every_number_is_there_and_defaults_are_the_real_ones():
    tables = tomllib.loads(WHOLE) | {"chip": tomllib.loads(OTHER_CHIP)["chip"]}
    for name, kind in TABLES.items():
        table, form = tables[name] if name else tables, form_of(kind)
        for field in (*form.required, *form.optional, *form.texts, *form.flags, *form.tables):
            assert field in table, (name, field)
        defaults = {field.name: field.default for field in dataclasses.fields(kind)}
        for field in form.optional:
            given = table[field]
            if "default" in given["source"]:
                assert given["value"] == defaults[field], (name, field)
            elif f"#~ {field} =" in DEVICE_TEMPLATE and defaults[field] is not None:
                # Unlimited rates, and areas and energies that something else stands for.
                assert defaults[field] in (float("inf"), 0.0), (name, field)
