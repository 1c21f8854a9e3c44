"""Devices, networks and schemes of the user's own: given as objects, written whole, read back, registered by name."""

import dataclasses
import tomllib

import jax
import jax.numpy as jnp
import pytest
from narrow_devices import one_of_each_form

import jaxspec as js
from hwmodels import Device, MemoryTier, catalog
from jaxspec.compress.footprint import uniform
from jaxspec.compress.schemes import Scheme
from jaxspec.errors import InputError
from jaxspec.registries import registry_of
from jaxspec.settings import build_config, knob_values, to_toml
from jaxspec.settings.knobs import KnobSpec
from jaxspec.settings.schemes import SCHEME_FACTS, SchemeFacts
from jaxspec.studies import AdviseConfig, CodesignConfig, EvaluateConfig, PackConfig, PredictConfig, SweepConfig
from jaxspec.testing import check_device


def faster(name="rtx-4090", factor=2.0):
    device = js.device(name)
    rate = device.memory.bandwidth_bytes_per_s * factor
    return device.replace(memory=device.memory.replace(bandwidth_bytes_per_s=rate))


@pytest.fixture
def registered():
    """Registers, and forgets afterwards."""
    done = []

    def register(kind, found, name=None):
        done.append((registry_of(kind), js.register(kind, found, name)))
        return done[-1][1]

    yield register
    for registry, name in done:
        registry.pop(name, None)


def again(config):
    """The configuration that its own file makes."""
    return build_config(type(config), tomllib.loads(to_toml(config)))


def test_a_device_and_a_network_are_written_whole_and_read_back():
    network = js.architecture("llama-3.2-1b").replace(num_layers=20.0)
    config = PredictConfig(device=[faster(), "rtx-4090"], architecture=network)
    table = tomllib.loads(to_toml(config))
    assert table["device"][0]["memory"]["bandwidth_bytes_per_s"] == {"value": 2016e9, "source": "given"}
    assert table["device"][1] == "rtx-4090"
    assert table["architecture"]["num_layers"]["value"] == 20
    assert again(config) == config
    assert js.device(config.device[0]) == faster()
    assert js.architecture(config.architecture) == network
    # With a network's name goes the form of its release. Two of these have the same shapes, so neither is meant.
    assert PredictConfig(architecture=js.architecture("gpt-oss-20b")).architecture == "gpt-oss-20b"
    assert PredictConfig(architecture=js.architecture("vicuna-7b")).architecture.startswith("architecture-")
    # Another device has another name, so that nothing that was kept by name is taken for it.
    assert PredictConfig(device=faster(factor=3.0)).device != PredictConfig(device=faster()).device


def test_the_same_table_reads_in_a_program_that_never_had_the_object():
    text = to_toml(PredictConfig(device=faster(factor=5.0)))
    name = tomllib.loads(text)["device"][0]["name"]
    del registry_of("device")[name]
    config = build_config(PredictConfig, tomllib.loads(text))
    assert config.device == (name,)
    assert to_toml(config) == text


@pytest.mark.parametrize("kind", [PredictConfig, EvaluateConfig, AdviseConfig, SweepConfig, CodesignConfig])
def test_every_command_takes_a_device(kind):
    more = {
        SweepConfig: {"axes": {"workload.batch": [1.0, 2.0]}},
        CodesignConfig: {
            "variables": {"device.memory.bandwidth_bytes_per_s": {"from": 1e11, "to": 1e12}},
            "budgets": {"area_mm2": 100.0},
        },
    }
    config = build_config(kind, {"device": faster(), **more.get(kind, {})})
    assert again(config) == config


@pytest.mark.parametrize("name", one_of_each_form())
def test_a_device_of_each_form_can_be_given_changed(name):
    device = catalog.device(name)
    assert PredictConfig(device=device) == PredictConfig(device=name)  # with its name go kernels of engines
    device = device.replace(memory=device.memory.replace(capacity_bytes=device.memory.capacity_bytes * 1.5))
    (own,) = PredictConfig(device=device).device
    leaves = lambda tree: [float(leaf) for leaf in jax.tree.leaves(tree)]
    (read,) = again(PredictConfig(device=own)).device
    assert leaves(js.device(read)) == leaves(device)


def test_what_no_file_can_say_is_refused_in_one_line():
    device = faster()
    many = device.replace(peak_flops_per_s=jnp.asarray([1e12, 2e12]))
    fitted = js.device("h100-sxm")
    fitted = fitted.replace(matrix_unit=dataclasses.replace(fitted.matrix_unit, overlap_temperature=0.5))
    for thing, words in (
        (many, "peak_flops_per_s is no single number"),
        (fitted, "has fitted numbers; give the device's name or file instead"),
        (device.replace(group=1.0), "which no file of a device can say"),
        (device.replace(compute_efficiency=3.0), r"compute_efficiency is 3\.0; it must be a number in \(0, 1\]"),
        ({"title": "x"}, "peak_flops_per_s is missing"),
        (jnp.ones(3), "separated by commas"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            PredictConfig(device=thing)
        assert "\n" not in str(caught.value)


def test_a_registered_device_keeps_its_name_in_files(registered):
    assert registered("device", faster(), "mine") == "mine"
    config = PredictConfig(device="mine")
    assert tomllib.loads(to_toml(config))["device"][0]["name"] == "mine"
    assert again(config) == config
    registered("device", faster(factor=3.0), "mine")  # as a cell of a notebook that runs again
    assert build_config(PredictConfig, tomllib.loads(to_toml(config))).device == config.device
    old = tomllib.loads(to_toml(PredictConfig(device=faster())))
    old["device"][0]["name"] = "mine"
    assert build_config(PredictConfig, old).device[0].startswith("mine-")
    assert "mine" in catalog.device_names()


@pytest.mark.parametrize(
    ("kind", "found", "name", "words"),
    [
        ("devices", None, "x", "kind is 'devices'; did you mean 'device'"),
        ("device", 3, "x", "device 'x' is 3; give a Device"),
        ("device", faster, "rtx-4090", "the name of device 'rtx-4090' is taken"),
        ("study", 3, "devices", "the name of study 'devices' is taken"),
        ("device", 3, "Mine, too", "a name has small letters"),
        ("draft", 3, "x", "draft 'x' is of type int; give the function"),
        ("unit", Device, "x", "Device has no short_title"),
        ("placement", MemoryTier, "x", "it must be a class with title"),
        ("family", 3, "x", "family 'x' is 3; give a Family"),
    ],
)
def test_what_is_no_member_is_refused_in_one_line(kind, found, name, words):
    with pytest.raises(InputError, match=words) as caught:
        js.register(kind, found, name)
    assert "\n" not in str(caught.value)


def scheme(name="thin", knob="thin_bits", **more):
    spec = KnobSpec(knob, "Bits of a thin weight.", **{"default": 2.0, "low": 1.0, "high": 6.0, **more})
    facts = SchemeFacts(name, "thin weights", "", lossless=False, knob_specs=(spec,), has_draft=True)
    return Scheme(facts, lambda knobs, dtype: uniform(knobs[knob], 8.0))


def test_a_knob_of_a_registered_scheme_is_a_setting_of_every_command(registered):
    before = PredictConfig()
    registered("scheme", scheme())
    config = PredictConfig(scheme="thin", thin_bits=3)
    assert knob_values(config) == {"thin_bits": 3.0}
    assert again(config) == config
    assert config != PredictConfig(scheme="thin")
    assert before == PredictConfig()  # made before there was such a field
    assert js.scheme("thin").footprint(thin_bits=4).draft_weight_bits["q"] == 4
    with pytest.raises(InputError, match="thin_bits is 9; allowed is 1 to 6"):
        PredictConfig(scheme="thin", thin_bits=9)
    with pytest.raises(InputError, match="thin_bits would have no effect: scheme cassandra1 has no such knob"):
        PredictConfig(thin_bits=3)
    assert "thin_bits" in js.predict.__doc__
    with pytest.raises(InputError, match="scheme is 'thin'; allowed are"):
        EvaluateConfig(scheme="thin")  # it does not run
    with pytest.raises(InputError, match="scheme is 'thin'; "):
        PackConfig(scheme="thin")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"knob": "batch"}, "knob 'batch' has the name of another setting"),
        ({"knob": "not a name"}, "knob 'not a name' has the name of another setting, or one that none can have"),
        ({"knob": "weight_prune"}, "another knob 'weight_prune' than other schemes"),
    ],
)
def test_a_knob_that_cannot_be_a_setting_is_refused(more, words):
    with pytest.raises(InputError, match=words):
        js.register("scheme", scheme("odd", **more))
    assert "odd" not in SCHEME_FACTS


def test_an_object_stands_for_the_name_of_a_scheme(registered):
    made = scheme("slim", "slim_bits")
    assert PredictConfig(scheme=made).scheme == "slim"
    other = scheme("lean", "lean_bits")
    assert knob_values(build_config(PredictConfig, {"lean_bits": 5, "scheme": other})) == {"lean_bits": 5.0}
    for known in (js.scheme("cassandra2"), js.scheme("cassandra2").scheme):
        assert PredictConfig(scheme=known) == PredictConfig(scheme="cassandra2")
    del registry_of("scheme")["lean"]
    del registry_of("scheme")["slim"]
    assert "slim" not in SCHEME_FACTS


def test_an_empty_name_is_refused_and_not_replaced():
    for kind, member in (("device", faster()), ("scheme", scheme("odd", knob="odd_bits"))):
        with pytest.raises(InputError, match=f"{kind} is called ''; a name has"):
            js.register(kind, member, name="")


def test_the_contract_of_devices_names_a_number_out_of_range():
    with pytest.raises(AssertionError, match=r"^memory\.bandwidth_bytes_per_s is -"):
        check_device(faster(factor=-1.0))


def test_numbers_of_a_device_and_a_network_are_keywords():
    assert js.device("rtx-4090", memory_bandwidth_bytes_per_s=2016e9) == faster()
    assert js.architecture("llama-3.2-1b", num_layers=20) == js.architecture("llama-3.2-1b").replace(num_layers=20.0)
    for wrong, words in (
        ({"memory_bandwith_bytes_per_s": 1}, "memory_bandwidth_bytes_per_s"),
        ({"launch_s": -1}, "launch_s"),
    ):
        with pytest.raises(InputError, match=words):
            js.device("rtx-4090", **wrong)


@pytest.mark.parametrize(
    ("names", "take"), [("devices", js.device), ("architectures", js.architecture), ("schemes", js.scheme)]
)
def test_names_of_each_kind_are_listed(names, take, registered):
    found = getattr(js, names)()
    assert found == tuple(sorted(found))
    assert take(found[0]) is not None
    assert {"self", "ngram"} <= set(js.drafts())
    registered("device", faster(), "listed-device")
    assert "listed-device" in js.devices()


@pytest.mark.parametrize("around", [jax.grad, jax.jit], ids=["grad", "jit"])
def test_a_traced_number_in_a_command_names_price(around):
    def rate(bandwidth):
        device = faster()
        device = device.replace(memory=device.memory.replace(bandwidth_bytes_per_s=bandwidth))
        return js.predict(device=device).cycle_s.value

    with pytest.raises(InputError, match=r"device is traced .* js\.price"):
        around(rate)(1e12)
    with pytest.raises(InputError, match=r"acceptance is traced .* js\.price"):
        around(lambda rate: js.predict(acceptance=rate).cycle_s.value)(0.8)
    with pytest.raises(InputError, match=r"config is traced .* js\.price"):
        around(js.predict)(0.8)


def test_price_takes_traced_numbers_of_devices_and_networks_by_name():
    def cycle_s(bandwidth, layers):
        network = js.architecture("Llama 3.2 1B", num_layers=layers)
        device = js.device("RTX 4090", memory_bandwidth_bytes_per_s=bandwidth)
        cost = js.price(js.Case(device, network, js.Workload(1.0, 512.0)), js.chain_plan(4.0))
        assert repr(cost).startswith("CycleCost(draft_s=")
        assert len(repr(cost)) < 120
        return cost.total_s

    (slope, per_layer), total = jax.grad(cycle_s, (0, 1))(1e12, 16.0), float(cycle_s(1e12, 16.0))
    assert slope * 1e12 == pytest.approx(-total, rel=0.05)  # decoding waits for memory
    assert per_layer == pytest.approx(float(cycle_s(1e12, 17.0)) - total, rel=1e-3)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        (lambda: js.predit, "no attribute 'predit'; did you mean 'predict'"),
        (lambda: js.load("embeded"), "'embeded' does not exist.* did you mean 'embedded'"),
        (lambda: js.architecture("lama-3.1-8b"), "did you mean 'llama-3.1-8b'"),
    ],
)
def test_a_misspelt_name_is_answered_by_the_nearest(wrong, near):
    with pytest.raises((AttributeError, InputError), match=near):
        wrong()
