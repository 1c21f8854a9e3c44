"""What the machine says of its memory."""

import os
from types import SimpleNamespace

import jax
import pytest

from jaxspec.runs import carrying_out, machine
from jaxspec.runs.carrying_out import carry_out
from jaxspec.settings.base import Settings


@pytest.fixture
def device(monkeypatch):
    """Replaces the first device by one that tells these numbers of its memory."""

    def replaced(platform, stats, count=1):
        one = SimpleNamespace(platform=platform, memory_stats=lambda: stats, device_kind="made up")
        monkeypatch.setattr(jax, "local_devices", lambda: [one] * count)

    return replaced


def test_memory_of_a_device_is_what_it_tells(device):
    device("gpu", {"bytes_limit": 112_580_000_000, "peak_bytes_in_use": 32_210_000_000})
    assert machine.device_memory_bytes() == 112_580_000_000
    assert machine.peak_device_bytes() == 32_210_000_000
    for nothing in (None, {}):
        device("gpu", nothing)
        assert machine.device_memory_bytes() == 8_000_000_000
        assert machine.peak_device_bytes() is None


def test_memory_of_a_processor_is_what_the_process_may_take(device, tmp_path, monkeypatch):
    device("cpu", None)
    file = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "_LIMIT", file)
    everything = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.device_memory_bytes() == everything > 1e8
    for text, wanted in (("max\n", everything), ("1000000\n", 1_000_000), (str(2 * everything), everything)):
        file.write_text(text, encoding="utf-8")
        assert machine.device_memory_bytes() == wanted
    device("cpu", None, count=4)  # they share it
    assert machine.device_memory_bytes() == everything // 4
    monkeypatch.delattr(os, "sysconf")
    file.unlink()
    assert machine.device_memory_bytes() == 2_000_000_000


@pytest.mark.parametrize(("peak", "told"), [(None, False), (9e8, False), (32.21e9, True)])
def test_a_run_tells_how_much_of_a_device_it_took(peak, told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(carrying_out, "peak_device_bytes", lambda: peak)
    result, _ = carry_out("trial", Settings(), lambda directory, reporter: lambda: {"a": 1}, out=tmp_path / "run")
    assert result == {"a": 1}
    assert ("memory: at most 32.2 GB of the device were in use" in capsys.readouterr().err) == told
