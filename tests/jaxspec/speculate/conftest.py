"""Networks that several tests of decoding sample from."""

import pytest
from every_text import SMALL


@pytest.fixture(scope="session")
def networks(random_network):
    """A target and a draft."""
    return random_network(SMALL, 3, sharpness=0.7), random_network(SMALL, 4, sharpness=0.7)
