"""A table that every catalog entry passes, and what happens to names and files that are none."""

import dataclasses

import jax
import pytest

from hwmodels import Architecture, Device, catalog, parameters
from hwmodels.analysis.design_point import leaf_names
from hwmodels.catalog.calibrations import calibrated_engines
from hwmodels.numerics import units

DEVICES, ARCHITECTURES = catalog.device_names(), catalog.architecture_names()
#: Words that a source may consist of besides a document's name; a bare "assumed" says nothing.
SHORTEST_SOURCE = 12


def test_names():
    assert {"cassandra-npu", "jetson-agx-orin", "rtx-4090", "alveo-v80", "elmoe3d-hb4", "hexagon-v75"} < set(DEVICES)
    assert list(DEVICES) == sorted(DEVICES)
    assert {"embedded", "llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gpt-oss-20b", "opt-13b"} < set(
        ARCHITECTURES
    )
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES)


@pytest.mark.parametrize("name", DEVICES)
def test_every_device(name):
    device = catalog.device(name)
    assert isinstance(device, Device)
    assert all(type(leaf) is float for leaf in jax.tree.leaves(device))
    numbers = dict(zip(leaf_names(device), jax.tree.leaves(device), strict=True))
    # Latencies, energies and the like may be left out; nothing is negative.
    assert min(numbers.values()) >= 0
    # Of a fitted format, of products or of experts, some terms are absent; blocks of attention are of some kernels alone.
    optional = ("latency_s", "_j", "block_byte_s", "split_pairs")
    given = [name for name in catalog.device_entry(name).sources if not name.endswith(optional)]
    assert (
        min(numbers[name] for name in given if not name.startswith(("matrix_unit.formats", "matrix_unit.experts"))) > 0
    )
    # Bounds from a phone to a rack: a number in the wrong unit is off by a thousand.
    assert 0.5 < device.peak_flops_per_s / units.TERA < 1e5
    assert 10 < device.memory.bandwidth_bytes_per_s / units.GB < 1e5
    assert 1 < device.memory.capacity_bytes / units.GB < 1e4
    assert device.operator_latency_s < 1e-3
    # Ridge points from processing in banks, 1 FLOP per byte at 16 bits, to an accelerator on a phone's memory.
    assert 0.9 < device.peak_flops_per_s / device.memory.bandwidth_bytes_per_s < 1e4
    assert catalog.device_title(name)


@pytest.mark.parametrize("name", DEVICES)
def test_every_number_of_a_device_has_a_source(name):
    sources = catalog.device_entry(name).sources
    values = dict(zip(leaf_names(catalog.device(name)), jax.tree.leaves(catalog.device(name)), strict=True))
    assert set(sources) <= set(values)
    # What no source is given for has its class's default.
    for field in set(values) - set(sources):
        *path, leaf = field.split(".")
        owner = catalog.device(name)
        for key in path:
            owner = owner[int(key)] if isinstance(owner, tuple) else getattr(owner, key)
        assert values[field] == type(owner).__dataclass_fields__[leaf].default
    assert min(map(len, sources.values())) >= SHORTEST_SOURCE


@pytest.mark.parametrize("name", [name for name in DEVICES if catalog.device_entry(name).calibration])
def test_sources_are_of_numbers_that_the_engine_has(name):
    # The A100's own engine has two formats, the other two have one.
    for engine in calibrated_engines(catalog.device_entry(name).calibration):
        entry = catalog.device_entry(name, engine=engine)
        assert set(entry.sources) <= set(leaf_names(entry.device))
        assert "matrix_unit.multiprocessors" in entry.sources


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture(name):
    architecture = catalog.architecture(name)
    assert isinstance(architecture, Architecture)
    assert all(type(leaf) is float for leaf in jax.tree.leaves(architecture))
    assert architecture.num_heads % architecture.num_kv_heads == 0
    assert {architecture.tied_embeddings, architecture.qk_norm} <= {0.0, 1.0}
    assert sum(parameters(architecture).values()) > (1e5 if name == "embedded-small" else 1e6)
    defaults = {field.name: field.default for field in dataclasses.fields(Architecture)}
    unnamed = set(vars(architecture)) - set(catalog.architecture_sources(name))
    assert all(getattr(architecture, field) == defaults[field] for field in unnamed)
    assert len(catalog.architecture_sources(name)) >= 9
    assert min(map(len, catalog.architecture_sources(name).values())) >= SHORTEST_SOURCE
    assert catalog.architecture_title(name)


@pytest.mark.parametrize(
    ("lookup", "name", "message"),
    [
        (
            catalog.device,
            "rtx-409",
            "unknown device 'rtx-409'; did you mean 'rtx-4090' or 'rtx-5090' or 'rtx-4080'? allowed: "
            + ", ".join(DEVICES),
        ),
        (catalog.architecture, "", f"unknown architecture ''; allowed: {', '.join(ARCHITECTURES)}"),
    ],
)
def test_unknown_names_say_what_is_allowed(lookup, name, message):
    with pytest.raises(catalog.UnknownNameError) as caught:
        lookup(name)
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)


MINE = """title = "Mine"
peak_flops_per_s = { value = 10e12, source = "a guess for this test" }
compute_efficiency = { value = 0.7, source = "a guess for this test" }
operator_latency_s = { value = 1e-6, source = "a guess for this test" }
[memory]
bandwidth_bytes_per_s = { value = 50e9, source = "a guess for this test" }
efficiency = { value = 0.8, source = "a guess for this test" }
capacity_bytes = { value = 8e9, source = "a guess for this test" }
"""


def test_device_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE, encoding="utf-8")
    device = catalog.device_entry(str(path)).device
    assert device.memory.efficiency == 0.8


def test_device_file_with_a_fault_is_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace("50e9", "-50e9"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine.toml: memory.bandwidth_bytes_per_s is -5"):
        catalog.device_entry(str(path))


@pytest.mark.parametrize("name", catalog.architecture_names())
def test_positions_and_tokenizers_are_plausible(name):
    positions, tokenizer = catalog.architecture_positions(name), catalog.architecture_tokenizer(name)
    assert positions is None or 512 <= positions <= 2**20
    assert tokenizer is None or tokenizer == tokenizer.lower().strip("/")
    learned = float(catalog.architecture(name).learned_positions)
    assert not learned or learned >= positions


@pytest.mark.parametrize(
    ("raw", "positions"),
    [
        ({"model_type": "llama", "max_position_embeddings": 4096}, 4096),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}, "max_position_embeddings": 131072}, 131072),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}, "max_position_embeddings": 2048}, 8192),
        (
            {
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
                "max_position_embeddings": 40960,
            },
            131072,
        ),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}, "max_position_embeddings": 512}, 512),
        ({"model_type": "gemma3", "text_config": {"max_position_embeddings": 77}}, 77),
        ({"model_type": "gpt2", "n_positions": 99}, 99),
        ({"model_type": "llama", "max_position_embeddings": "many"}, None),
    ],
)
def test_positions_of_a_config_follow_its_scaling(raw, positions):
    assert catalog.positions_of_config({"model_type": "qwen3"} | raw) == positions
