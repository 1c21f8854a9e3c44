import pytest

from hwmodels.catalog.entries import EntryError, parse_entry
from hwmodels.numerics.fields import COUNT, FLAG, NOT_NEGATIVE, POSITIVE, SHARE

RULES = {"rate": POSITIVE, "latency_s": NOT_NEGATIVE, "memory.efficiency": SHARE, "layers": COUNT, "tied": FLAG}
GOOD = """
title = "A thing"
rate = { value = 3e12, source = "sheet" }
latency_s = { value = 0, source = "assumed: none" }
layers = { value = 7, source = "config" }
tied = { value = true, source = "config" }
[memory]
efficiency = { value = 0.5, source = "measured" }
"""


def test_reads_values_and_sources():
    entry = parse_entry(GOOD, RULES, where="thing.toml")
    assert entry.title == "A thing"
    assert entry.values == {"rate": 3e12, "latency_s": 0.0, "memory.efficiency": 0.5, "layers": 7.0, "tied": 1.0}
    assert entry.sources["memory.efficiency"] == "measured"
    assert {type(value) for value in entry.values.values()} == {float}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rate =", "rat =", r"unknown key 'rat'; did you mean 'rate'\? allowed: title, rate"),
        ("efficiency =", "eficiency =", r"unknown key 'memory.eficiency'; did you mean 'memory.efficiency'"),
        ('title = "A thing"', "", "title is None; it must be a text"),
        ('latency_s = { value = 0, source = "assumed: none" }', "", "latency_s is missing; add latency_s = "),
        ("[memory]\nefficiency =", "memory =", "unknown key 'memory.value'"),
        ('[memory]\nefficiency = { value = 0.5, source = "measured" }', "memory = 3", r"memory is 3; .*\[memory\]"),
        ("3e12", "-3e12", "rate is -3000000000000.0; it must be a positive number"),
        ("3e12", "0", "rate is 0; it must be a positive number"),
        ("3e12", "1e300", "rate is 1e.300; sizes of numbers are from 1e-20 to 1e.20, in SI units"),
        ("3e12", '"' + 400 * "fast " + '"', "rate is 'fast (fast )+.{0,4}…; it must be a positive number"),
        ("value = 0,", "value = -1e-6,", "latency_s is -1e-06; it must be a number >= 0"),
        ("0.5", "1.5", r"memory.efficiency is 1.5; it must be a number in \(0, 1\]"),
        ("value = 7", "value = 7.5", "layers is 7.5; it must be a positive whole number"),
        ("value = true", "value = 1", "tied is 1; it must be true or false"),
        ('{ value = 3e12, source = "sheet" }', "3e12", "rate is 3000000000000.0; it must be { value"),
        ('source = "sheet"', 'source = ""', "rate has source ''; it must be a text"),
        ("rate =", "rate", "not valid TOML"),
        ("layers =", 'rate = { value = 1, source = "again" }\nlayers =', "not valid TOML"),
    ],
)
def test_says_what_is_wrong_in_one_line(old, new, message):
    assert old in GOOD
    with pytest.raises(EntryError, match=f"^thing.toml: {message}") as caught:
        parse_entry(GOOD.replace(old, new, 1), RULES, where="thing.toml")
    assert "\n" not in str(caught.value)


def test_optional_fields_may_be_missing_but_not_wrong():
    optional = frozenset({"latency_s", "memory.efficiency"})
    text = GOOD.replace('latency_s = { value = 0, source = "assumed: none" }', "")
    entry = parse_entry(text, RULES, where="thing.toml", optional=optional)
    assert set(entry.values) == set(entry.sources) == set(RULES) - {"latency_s"}
    with pytest.raises(EntryError, match="layers is missing"):
        parse_entry(text.replace('layers = { value = 7, source = "config" }', ""), RULES, where="x", optional=optional)
    with pytest.raises(EntryError, match=r"memory\.efficiency is 2\.5"):
        parse_entry(text.replace("0.5", "2.5"), RULES, where="x", optional=optional)
