import pytest

from jaxspec.report.formatting import fixed, knobs_in_words, quantity, times


def test_unknown_numbers_are_said_to_be_unknown():
    assert (
        fixed(None, 2) == times(None) == knobs_in_words(None, "kv") == knobs_in_words({"kv_prune": []}, "kv") == "n/a"
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("peak_flops_per_s", 165.2e12, "165.2 TFLOP/s"),
        ("memory.bandwidth_bytes_per_s", 1008e9, "1.008 TB/s"),
        ("capacity_bytes", 9437184, "9.437 MB"),
        ("capacity_bytes", 12, "12 B"),
        ("operator_latency_s", 4.2e-6, "4.2 µs"),
        ("peak_flops_per_s", 2e16, "20,000 TFLOP/s"),
        ("hidden_size", 14336.0, "14,336"),
        ("tokens_per_s", 0.02, "0.02"),
    ],
)
def test_quantities_are_scaled_by_the_dimension_in_the_name(name, value, text):
    assert quantity(name, value) == text


def test_knobs_in_words():
    same = {
        "weight_prune": {"q": [0.4, 0.4]},
        "weight_cut_bits": {"q": [4.0, 4.0]},
        "kv_prune": [0.0],
        "kv_cut_bits": [1.0],
    }
    assert knobs_in_words(same, "weight") == "40 % pruned, 4 bits cut"
    assert knobs_in_words(same, "kv") == "0 % pruned, 1 bit cut"
    mixed = {
        "weight_prune": {"q": [0.125, None], "k": [0.5, 0.25]},
        "weight_cut_bits": {"q": [2.0, 3.0], "k": [5.0, 1.0]},
    }
    assert knobs_in_words(mixed, "weight") == "12 to 50 % pruned, 1 to 5 bits cut"
