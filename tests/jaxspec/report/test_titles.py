import pytest
from made_results import read

from jaxspec.report.assumptions import device_data
from jaxspec.report.configurations import gap_in_standard_errors
from jaxspec.report.titles import configurations, device_title, model_title, provenance
from jaxspec.results.network_results import Configuration


def test_configurations_come_in_the_order_of_the_story():
    lengths = {"tuned": 1, "mine": 2, "default": 3}
    entry = {"configurations": {name: {"draft_length": n} for name, n in lengths.items()} | {"grid": None}}
    assert list(configurations(read(entry))) == ["default", "tuned", "mine"]
    assert configurations(read({})) == configurations(read({"configurations": None})) == {}


def test_gap_is_given_or_computed():
    counts = {"tokens_per_cycle_predicted": 5.0, "tokens_per_cycle_counted": 4.7}
    gap = lambda found: gap_in_standard_errors(Configuration.from_plain(found))
    assert gap({"tokens_per_cycle_gap_in_standard_errors": -2.5}) == 2.5
    # |4.7 - 5.0| / 0.1
    assert gap(counts | {"tokens_per_cycle_standard_error": 0.1}) == pytest.approx(3.0)
    assert gap(counts) is None
    assert gap(counts | {"tokens_per_cycle_standard_error": 0.0}) is None


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (3082496, "embedded (3.08 M parameters)"),
        (8.03e9, "embedded (8.03 G parameters)"),
        (41_000, "embedded (41 k parameters)"),
        (12, "embedded (12 parameters)"),
        (None, "embedded"),
    ],
)
def test_model_is_named_with_its_size(parameters, words):
    assert model_title(read({"model": {"name": "embedded", "parameters": parameters}})) == words


def test_provenance_says_what_ran_and_what_was_priced(make_entry):
    assert provenance(read(make_entry())) == (
        "acceptance measured on embedded (3.08 M parameters), "
        "cost predicted for Llama 3.1 8B on NVIDIA GeForce RTX 4090"
    )
    assert provenance(read({})).startswith("acceptance measured on unnamed model")


def test_device_data_of_the_catalog_has_values_and_sources(make_entry):
    data = {found.field: found for found in device_data(read(make_entry()))}
    assert data["peak_flops_per_s"].value == 165.2e12
    assert data["memory.bandwidth_bytes_per_s"].value == 1008e9
    assert "whitepaper" in data["memory.bandwidth_bytes_per_s"].source


def test_device_data_of_the_entry_comes_first(make_entry):
    given = {"peak_flops_per_s": {"value": 7e12, "source": "my bench"}, "odd": {"value": None, "source": "x"}}
    (found,) = device_data(read(make_entry() | {"device_data": given}))
    assert (found.field, found.value, found.source) == ("peak_flops_per_s", 7e12, "my bench")


def test_a_device_outside_the_catalog_keeps_its_name():
    assert device_title(read({"device": "my-board"})) == "my-board"
    assert device_data(read({"device": "my-board"})) == []
