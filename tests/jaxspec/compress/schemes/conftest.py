"""A small network with odd sizes and its calibration: what schemes are tried on."""

import pytest

from jaxspec.testing import schemes


@pytest.fixture(scope="module")
def target():
    return schemes.network()


@pytest.fixture(scope="module")
def norms():
    return schemes.norms()
