import pytest

from hwmodels.numerics import units


def test_decimal_and_binary_units_differ():
    # A 24 GB memory of binary chips holds 7.4 % more than 24e9 bytes.
    assert units.GB == 1e9
    assert units.GIB == 1_073_741_824
    assert units.MIB == units.KIB**2
    assert units.GB == units.MB * units.KB
    assert units.TERA == units.TB == 1e12
    assert units.BITS_PER_BYTE == 8


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (165.2e12, "165.2e12"),
        (14336.0, "14336"),
        (128256.0, "128256"),
        (999_999.6, "1000000"),
        (2.2e-6, "2.2e-6"),
        (0.0, "0"),
        (0.0839, "0.0839"),
        (float("inf"), "inf"),
    ],
)
def test_powers_of_engineers_are_multiples_of_three(value, text):
    assert units.engineering(value, 5) == text
