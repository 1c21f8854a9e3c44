"""Names as people write them: devices, networks of the Hub, numbers of tokens; what is not understood, stays as it came."""

import pytest

from hwmodels import catalog
from jaxspec.errors import InputError
from jaxspec.settings import CommonConfig
from jaxspec.settings.catalog_names import (
    catalog_architectures,
    catalog_devices,
    known_architecture,
    known_device,
    known_engine,
    known_model,
)
from jaxspec.studies import PredictConfig


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("RTX4090", "rtx-4090"),
        ("rtx_4090 calibrated", "rtx-4090-calibrated"),
        ("a100", "a100-sxm-80gb"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("H100", "h100-sxm"),
        ("m3 ultra", "m3-ultra"),
        ("H100 PCIe", "h100-pcie"),
        ("H800", "h100-sxm"),
        ("RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("H100 mobile", "H100 mobile"),
        ("npu", "npu"),
        ("l40", "l40"),
        ("gpu", "gpu"),
    ],
)
def test_devices_are_understood(written, meant):
    assert known_device(written) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NVIDIA GeForce RTX 4070 Ti 12GB (overclocked)", "rtx-4070-ti"),
        ("RTX 4070 Ti SUPER 16GB", "rtx-4070-ti-super"),
        ("RTX 2070 Super", None),
        ("NVIDIA RTX 4060 Laptop GPU", "rtx-4060-laptop"),
        ("NVIDIA RTX 3070 Laptop GPU", None),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q", "rtx-pro-6000"),
        ("Mac Studio (M5 Ultra)", None),
        ("AMD RX 9070 XT", "rx-9070-xt"),
        ("Jetson Orin Nano Super 8GB", "jetson-orin-nano"),
        ("Jetson Orin NX 16GB", "jetson-orin-nx"),
    ],
)
def test_devices_in_logs_are_no_other_cards(written, meant):
    assert catalog.device_named(written, whole=False) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", None),  # slower memory
        ("NVIDIA A100-SXM4-40GB", None),
        ("a100 40gb", None),
        ("a100 80 GB", "a100-sxm-80gb"),
    ],
)
def test_names_that_drivers_print_are_understood(written, meant):
    assert catalog.device_named(written) == meant


def test_a_refusal_names_the_network_that_a_release_is_of():
    with pytest.raises(catalog.UnknownNameError, match=r"did you mean 'qwen3-30b-a3b'\? allowed"):
        catalog.architecture("Qwen/Qwen3-30B-A3B-Instruct-2507")


def test_aliases_mean_what_the_catalog_says():
    aliases = [alias for name in catalog_devices() for alias in catalog.device_entry(name).aliases]
    assert len(aliases) > 10
    wrong = {
        alias: known_device(alias)
        for alias in aliases
        if known_device(alias) not in (alias, catalog.device_named(alias))
    }
    assert wrong == {}


def test_catalog_names_mean_themselves():
    assert [known_device(name) for name in catalog_devices()] == list(catalog_devices())
    assert [known_architecture(name) for name in catalog_architectures()] == list(catalog_architectures())


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/llama-3.1-8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Llama 3.1 8B", "llama-3.1-8b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("own", "own"),
        ("somebody/Another-9B", "somebody/Another-9B"),
    ],
)
def test_networks_are_understood(written, meant, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert known_architecture(written) == meant


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the Hub with two versions of a network."""
    repository = tmp_path / "hub" / "models--somebody--Another-9B"
    for version in ("aaa", "bbb"):
        (repository / "snapshots" / version).mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("bbb")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return repository


def test_the_hubs_cache_is_searched(cache):
    expected = str(cache / "snapshots" / "bbb")
    assert known_model("somebody/Another-9B") == known_architecture("somebody/Another-9B") == expected
    assert CommonConfig(model="somebody/Another-9B").model == expected
    (cache / "refs" / "main").unlink()
    assert known_model("somebody/Another-9B") == "somebody/Another-9B"  # which version is not known
    (cache / "snapshots" / "aaa").rmdir()
    assert known_model("somebody/Another-9B") == expected


def test_settings_hold_the_names_that_are_meant():
    config = PredictConfig(architecture="meta-llama/Llama-3.1-70B", device="RTX 4090, a100", context="128k")
    assert (config.architecture, config.device) == ("llama-3.1-70b", ("rtx-4090", "a100-sxm-80gb"))
    assert config.context == (131_072,)


@pytest.mark.parametrize(("written", "number"), [("1.5K", 1536), ("2 k", 2048), ("1m", 1 << 20)])
def test_short_numbers_are_understood(written, number):
    assert CommonConfig(context=written).context == number
    assert PredictConfig(context=[written, 1]).context == (1, number)


@pytest.mark.parametrize("written", ["128q", "k", "0.3k", "12"])
def test_other_texts_are_no_numbers(written):
    with pytest.raises(InputError, match="context is"):
        CommonConfig(context=written)


def test_engines_are_understood_as_people_write_them():
    written = ("vLLM", "vllm-2025", "llamacpp", "LLAMA.cpp", "TensorRT-LLM", "mlx_cuda", "ollama")
    assert [known_engine(name) for name in written] == [
        *("vllm", "vllm-2025", "llama.cpp", "llama.cpp", "trtllm", "mlx-cuda", "ollama")
    ]
