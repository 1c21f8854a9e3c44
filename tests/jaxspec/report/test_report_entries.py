import math

import pytest

from jaxspec.report.device_data import device_data
from jaxspec.report.entries import (
    NO_STATUS,
    configurations,
    device_title,
    gap_in_standard_errors,
    lookup,
    model_title,
    number,
    provenance,
    status,
)


def test_lookup_of_what_is_not_there_is_none():
    tree = {"a": {"b": 3}, "c": None, "d": [1]}
    assert lookup(tree, "a", "b") == 3
    assert lookup(tree, "a", "x") is None
    assert lookup(tree, "c", "x") is None
    assert lookup(tree, "d", "x") is None


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, "fast", True, [1.0], {}])
def test_only_finite_numbers_are_numbers(value):
    assert number({"x": value}, "x") is None


def test_numbers_are_read_as_floats():
    assert number({"x": 3}, "x") == 3.0
    assert number({"x": 0}, "x") == 0.0


def test_configurations_come_in_the_order_of_the_story():
    entry = {"configurations": {"tuned": {"a": 1}, "mine": {"a": 2}, "default": {"a": 3}, "grid": None}}
    assert list(configurations(entry)) == ["default", "tuned", "mine"]
    assert configurations({}) == configurations({"configurations": None}) == {}


def test_status_is_found_by_name_by_path_and_by_group():
    assert status({"status": {"alpha_token": "measured"}}, "acceptance", "alpha_token") == "measured"
    assert status({"status": {"acceptance.alpha_token": "input"}}, "acceptance", "alpha_token") == "input"
    assert status({"status": {"acceptance": "calibrated"}}, "acceptance", "alpha_token") == "calibrated"
    assert status({"status": {"alpha_token": None}}, "acceptance", "alpha_token") == NO_STATUS
    assert status({}, "bits_per_weight") == NO_STATUS


def test_gap_is_given_or_computed():
    counts = {"tokens_per_cycle_predicted": 5.0, "tokens_per_cycle_counted": 4.7}
    assert gap_in_standard_errors({"tokens_per_cycle_gap_in_standard_errors": -2.5}) == 2.5
    # |4.7 - 5.0| / 0.1
    assert gap_in_standard_errors(counts | {"tokens_per_cycle_standard_error": 0.1}) == pytest.approx(3.0)
    assert gap_in_standard_errors(counts | {"tokens_per_cycle_standard_error": 0.0}) is None
    assert gap_in_standard_errors(counts) is None


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
    assert model_title({"model": {"name": "embedded", "parameters": parameters}}) == words


def test_provenance_says_what_ran_and_what_was_priced(make_entry):
    assert provenance(make_entry()) == (
        "acceptance measured on embedded (3.08 M parameters), "
        "cost predicted for Llama 3.1 8B on NVIDIA GeForce RTX 4090"
    )
    assert provenance({}).startswith("acceptance measured on unnamed model")


def test_device_data_of_the_catalog_has_values_and_sources(make_entry):
    data = {found.field: found for found in device_data(make_entry())}
    assert data["peak_flops_per_s"].value == 165.2e12
    assert data["memory.bandwidth_bytes_per_s"].value == 1008e9
    assert "whitepaper" in data["memory.bandwidth_bytes_per_s"].source


def test_device_data_of_the_entry_comes_first(make_entry):
    given = {"peak_flops_per_s": {"value": 7e12, "source": "my bench"}, "odd": {"value": None, "source": "x"}}
    (found,) = device_data(make_entry() | {"device_data": given})
    assert (found.field, found.value, found.source) == ("peak_flops_per_s", 7e12, "my bench")


def test_a_device_outside_the_catalog_keeps_its_name():
    assert device_title({"device": "my-board"}) == "my-board"
    assert device_data({"device": "my-board"}) == []
