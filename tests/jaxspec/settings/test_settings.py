"""Configurations check themselves, however they are made; the checks are those of the command line."""

import dataclasses
import math
from fractions import Fraction
from pathlib import Path, PurePosixPath

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.models.embedded import SMALL_NAME
from jaxspec.settings import build_config, config_hash, to_toml
from jaxspec.settings.base import Settings
from jaxspec.settings.common import DRAFT_WITHIN_TARGET
from jaxspec.settings.fields import explained, hints, setting, setting_of, takes_several
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.schemes import KNOBS, SCHEME_FACTS
from jaxspec.studies import (
    EvaluateConfig,
    PackConfig,
    PredictConfig,
    SweepConfig,
    TreeConfig,
    TuneConfig,
    inspect_file,
    pack_checkpoint,
    predict,
    search_tree,
    sweep,
    tune,
    unpack_container,
)
from jaxspec.studies.predict import run as predict_run

KINDS = (TuneConfig, EvaluateConfig, TreeConfig, PredictConfig, PackConfig)


def numbers():
    """Every number with limits of every configuration that reads it."""
    for kind in (*KINDS, SweepConfig):
        for field in dataclasses.fields(kind):
            found, annotation = setting_of(field), hints(kind)[field.name]
            unread = DRAFT_WITHIN_TARGET in kind.unused and field.name in DRAFT_WITHIN_TARGET.names
            if found.high is not None and not unread:
                yield pytest.param(kind, field.name, found, annotation, id=f"{kind.__name__}.{field.name}")


def made(kind, name, value):
    """A configuration with one setting, beside those without which it would have no effect."""
    allowed = [facts for facts in SCHEME_FACTS.values() if facts.packs or kind is not PackConfig]
    scheme = next(facts.name for facts in allowed if name not in KNOBS or KNOBS[name] in facts.knob_specs)
    needed = {SweepConfig: {"axes": {"workload.batch": [1]}}, PredictConfig: {"scheme": scheme}}
    needed |= {kind: {"scheme": scheme}} if name in KNOBS else {}
    sampling = {"temperature": 0.7} if name in ("top_k", "top_p") else {}
    beside = {"stopwatch": True} if name == "repeats" else {}
    beside |= {"draft": SMALL_NAME} if name in DRAFT_WITHIN_TARGET.names else {}
    # Tokens per cycle and the draft length are given together.
    beside |= {"draft_length": 64} if name == "accepted_per_cycle" else {}
    beside |= {"accepted_per_cycle": 1.0} if name == "draft_length" and kind is PredictConfig else {}
    return kind(**needed.get(kind, {}), **sampling, **beside, **{name: value})


def inside(found):
    return found.high if found.above else found.low


@pytest.mark.parametrize(("kind", "name", "found", "annotation"), list(numbers()))
def test_python_gets_the_checks_of_the_command_line(kind, name, found, annotation):
    many = takes_several(annotation)
    refused = [found.low - 1, found.high + 1, math.nan, math.inf, -math.inf, "x", True, [], {}, object(), 10**400]
    refused += [[found.low - 1]] if many else [[found.high]]
    for value in refused + ([found.low] if found.above else []):
        with pytest.raises(InputError, match=name) as caught:
            made(kind, name, value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300
    for value in {inside(found), found.high}:
        whole = int(value) if float(value).is_integer() else value
        got = getattr(made(kind, name, whole), name)
        assert got == ((whole,) if many else whole)


def test_no_way_round_the_checks():
    good = TuneConfig()
    for make in (
        lambda: TuneConfig(batch=-3),
        lambda: dataclasses.replace(good, batch=-3),
        lambda: build_config(TuneConfig, {"batch": -3}),
        lambda: tune(TuneConfig(batch=-3)),
    ):
        with pytest.raises(InputError, match="batch is -3; allowed is 1 to 4096"):
            make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        good.batch = -3


def test_one_device_is_not_a_list_of_letters():
    assert TuneConfig(device="rtx-4090").device == ("rtx-4090",)
    assert TuneConfig(device="a, b,a").device == ("a", "b")
    assert TuneConfig(device=["b", Path("x/mine.toml")]).device == ("b", "x/mine.toml")
    assert TuneConfig(device=PurePosixPath("mine,too.toml")).device == ("mine,too.toml",)
    assert TuneConfig(device=np.array(["a", "b"])).device == ("a", "b")
    for value in ("", [], [""], [1], {"a": 1}, {"a"}, b"a", 3, None):
        with pytest.raises(InputError, match="device"):
            TuneConfig(device=value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.9, (0.9,)),
        (1, (1.0,)),
        ("0.9, 0.8", (0.9, 0.8)),
        ([0.9, 0.8], (0.9, 0.8)),
        (["0.9", 0.8], (0.9, 0.8)),
        (np.array([0.5, 0.25]), (0.5, 0.25)),
        (jnp.asarray([0.5, 0.25]), (0.5, 0.25)),
        (Fraction(1, 4), (0.25,)),
        (iter((0.5, 0.25)), (0.5, 0.25)),
    ],
)
def test_acceptance_is_a_number_or_several(value, expected):
    config = PredictConfig(acceptance=value)
    assert config.acceptance == expected
    assert all(type(number) is float for number in config.acceptance)


def test_texts_in_a_list_are_numbers_as_in_one_text():
    config = PredictConfig(batch=["1", "2"], context=["1k", "300"])
    assert (config.batch, config.context) == ((1, 2), (300, 1024))
    with pytest.raises(InputError, match="give one or more whole numbers"):
        PredictConfig(batch=["1", "two"])


@pytest.mark.study(2)
@pytest.mark.parametrize("settings", [{"acceptance": 0.9}, {"acceptance": [0.9, 0.8]}, {"acceptance": np.float32(0.5)}])
def test_predict_takes_numbers_and_lists(settings, monkeypatch):
    # What it prices with is another test's matter.
    seen = []
    monkeypatch.setattr(predict_run, "_price", lambda case, conditional, *_: seen.append(conditional))
    monkeypatch.setattr(predict_run, "_result", lambda *_: dataclasses.make_dataclass("Priced", ["inputs"])({}))
    predict(**settings)
    predict(PredictConfig(**settings))
    np.testing.assert_array_equal(*seen)
    assert len(seen[0]) == (8 if np.ndim(settings["acceptance"]) == 0 else 2)


def test_numbers_come_from_numpy_jax_and_whole_ones_as_floats():
    config = TuneConfig(batch=6 / 2, context=jnp.asarray(7), temperature=1, max_kl=np.float32(0.5), seed=np.int64(4))
    assert (config.batch, config.context, config.temperature, config.max_kl, config.seed) == (3, 7, 1.0, 0.5, 4)
    assert [type(v) for v in (config.batch, config.context, config.temperature, config.max_kl)] == [
        int,
        int,
        float,
        float,
    ]
    # The same run, whatever the number came as.
    assert config_hash(TuneConfig(temperature=1)) == config_hash(TuneConfig(temperature=1.0))
    assert "temperature = 1.0" in to_toml(TuneConfig(temperature=1))


def test_paths_may_come_as_paths(tmp_path):
    assert TuneConfig(model=tmp_path, text=tmp_path / "t.txt").text == str(tmp_path / "t.txt")
    for value in ("", "a\0b", "a\nb", "a\udcff", 3, b"x"):
        with pytest.raises(InputError, match="model is"):
            TuneConfig(model=value)
    for call in (
        lambda: inspect_file(tmp_path / "absent"),
        lambda: inspect_file(3),
        lambda: unpack_container(tmp_path / "absent.jspk", tmp_path / "x"),
        lambda: unpack_container("", "x"),
        lambda: pack_checkpoint(PackConfig(model=tmp_path / "absent")),
    ):
        with pytest.raises(InputError):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("function", "config"), [(tune, EvaluateConfig()), (search_tree, TuneConfig()), (sweep, {}), (pack_checkpoint, "x")]
)
def test_another_configuration_is_refused(function, config):
    with pytest.raises(InputError, match="is needed and"):
        function(config)


def test_settings_beside_a_configuration_are_refused():
    with pytest.raises(InputError, match="device beside it"):
        predict(PredictConfig(), device="l40s")
    with pytest.raises(InputError, match="unknown setting 'devise'; did you mean 'device'"):
        predict(devise="l40s")


CONFLICTS = [
    (EvaluateConfig, {"knobs": "r.json", "weight_prune": 0.3}, "weight_prune"),
    (EvaluateConfig, {"knobs": "r.json", "draft_length": 3, "kv_prune": 0.1}, "kv_prune, draft_length"),
    (TreeConfig, {"draft": "ngram", "kv_cut_bits": 3}, "kv_cut_bits"),
    (TreeConfig, {"draft": "ngram", "scheme": "cassandra1-coded"}, "scheme"),
    (TuneConfig, {"objective": "kl", "max_kl": 1}, "max_kl"),
    (
        PredictConfig,
        {"weight_prune": 0.3, "draft_bits": 4, "verify_bits": 8, "draft_kv_bits": 8, "verify_kv_bits": 8},
        "weight_prune",
    ),
    (PredictConfig, {"scheme": "huffman", "kv_prune": 0.3}, "kv_prune"),
    (PredictConfig, {"acceptance": [0.9, 0.8], "max_draft_length": 4}, "max_draft_length"),
    (PackConfig, {"scheme": "huffman", "knobs": "r.json"}, "knobs"),
    (PackConfig, {"scheme": "raw", "importance": "wanda"}, "importance"),
    (PackConfig, {"knobs": "r.json", "weight_cut_bits": 3}, "weight_cut_bits"),
]


@pytest.mark.parametrize(("kind", "settings", "unread"), CONFLICTS)
def test_settings_without_effect_are_refused(kind, settings, unread):
    with pytest.raises(InputError, match=f"^{unread} would have no effect: .*; leave one of them out$"):
        kind(**settings)


def test_limits_and_defaults_of_knobs_are_those_of_the_registry():
    for kind, dtype in ((EvaluateConfig, "float16"), (TreeConfig, "float16"), (PredictConfig, "bfloat16")):
        for name, spec in KNOBS.items():
            # A network in a file may be in float16, which has the longer mantissa; architectures are priced in bfloat16.
            field, widest = kind.__dataclass_fields__[name], spec.of_dtype(dtype)
            assert (setting_of(field).low, setting_of(field).high) == (widest.low, widest.high)
            assert setting_of(field).help.replace(" (bfloat16 has 7, float16 has 10)", "") == spec.help
            assert field.default == spec.default
    assert PackConfig().weight_cut_bits == 4
    assert isinstance(PackConfig().weight_cut_bits, int)
    assert setting_of(EvaluateConfig.__dataclass_fields__["draft_length"]).high == MAX_DRAFT_LENGTH


def test_a_sweep_is_checked_however_it_is_made():
    axes = {"workload.batch": np.array([1, 2])}
    assert SweepConfig(axes=axes, device="l40s").axes == {"workload.batch": [1, 2]}
    for settings, words in (
        ({"axes": {}}, "axes are missing"),
        ({"axes": 3}, "must be a table"),
        ({"axes": {"a": []}}, "is empty"),
        ({"axes": axes, "scheme": "hufman"}, "did you mean 'huffman'"),
        ({"axes": axes, "set": {"a": math.nan}}, "finite number"),
        ({"axes": axes, "pareto": {"x": "a"}}, "give x and y"),
        ({"axes": {"a": {"from": 1, "to": 2, "points": 10**9}}}, "axes.a.points is 1000000000; allowed is 1 to 50,"),
        ({"axes": axes, "max_draft_length": 65}, "allowed is 1 to 64"),
    ):
        with pytest.raises(InputError, match=words):
            SweepConfig(**settings)


def test_help_and_limits_come_from_the_table_beside_a_module(tmp_path):
    (tmp_path / "settings.toml").write_text('[Square.width]\nhelp = "Its width."\nlow = 1\nhigh = 9\n[Circle.width]\n')

    @dataclasses.dataclass(frozen=True)
    class Square(Settings, stated_beside=str(tmp_path / "config.py")):
        width: int = setting(3)

    (field,) = dataclasses.fields(Square)
    assert explained(field, int) == "Its width. [1 to 9; default: 3]"
    with pytest.raises(InputError, match="width is 10; allowed is 1 to 9"):
        Square(width=10)
    with pytest.raises(KeyError, match="width"):

        class Circle(Settings, stated_beside=str(tmp_path / "config.py")):
            radius: int = setting(3)
