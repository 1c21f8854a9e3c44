"""What the machine says of its memory."""

import os
from types import SimpleNamespace

import jax
import pytest

from jaxspec.host import measuring


@pytest.fixture
def device(monkeypatch):
    """Replaces the first device by one that tells these numbers of its memory."""

    def replaced(platform, stats, count=1):
        one = SimpleNamespace(platform=platform, memory_stats=lambda: stats, device_kind="made up")
        monkeypatch.setattr(jax, "local_devices", lambda: [one] * count)

    return replaced


def test_memory_of_a_device_is_what_it_tells(device):
    device("gpu", {"bytes_limit": 112_580_000_000, "peak_bytes_in_use": 32_210_000_000})
    assert measuring.device_memory_bytes() == 112_580_000_000
    assert measuring.peak_device_bytes() == 32_210_000_000
    for nothing in (None, {}):
        device("gpu", nothing)
        assert measuring.device_memory_bytes() == 8_000_000_000
        assert measuring.peak_device_bytes() is None


def test_memory_of_a_processor_is_what_the_process_may_take(device, tmp_path, monkeypatch):
    device("cpu", None)
    file = tmp_path / "memory.max"
    monkeypatch.setattr(measuring, "_LIMIT", file)
    everything = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert measuring.device_memory_bytes() == everything > 1e8
    for text, wanted in (("max\n", everything), ("1000000\n", 1_000_000), (str(2 * everything), everything)):
        file.write_text(text, encoding="utf-8")
        assert measuring.device_memory_bytes() == wanted
    device("cpu", None, count=4)  # they share it
    assert measuring.device_memory_bytes() == everything // 4
    monkeypatch.delattr(os, "sysconf")
    file.unlink()
    assert measuring.device_memory_bytes() == 2_000_000_000
