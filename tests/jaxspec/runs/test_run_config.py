import dataclasses
import tomllib

import pytest

from jaxspec.errors import InputError
from jaxspec.settings import build_config, config_hash, read_toml, to_toml
from jaxspec.studies import EvaluateConfig, TuneConfig


def test_later_layers_win_and_none_leaves_the_earlier_value():
    config = build_config(TuneConfig, {"batch": 2, "seed": 5}, {"batch": 3}, {"batch": None, "context": 7})
    assert (config.batch, config.seed, config.context) == (3, 5, 7)


def test_devices_come_as_one_string_or_a_list_and_only_once():
    assert build_config(TuneConfig, {"device": "a, b,a"}).device == ("a", "b")
    assert build_config(TuneConfig, {"device": ["b", "a"]}).device == ("b", "a")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"devise": "x"}, "did you mean 'device'"),
        ({"zzz": 1}, "unknown setting 'zzz'"),
        ({"batch": 0}, "batch is 0; allowed is 1"),
        ({"batch": "two"}, "must be one whole number"),
        ({"batch": True}, "must be one whole number"),
        ({"batch": 1.5}, "must be one whole number"),
        ({"batch": [1, 8]}, "must be one whole number"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"scheme": "zip"}, "allowed are cassandra1, cassandra1-coded"),
        ({"device": ""}, "one or more names"),
        ({"device": [1]}, "one or more names"),
        ({"max_kl": -1.0}, "max_kl is -1"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(settings, words):
    with pytest.raises(InputError, match=words) as caught:
        build_config(TuneConfig, settings)
    assert "\n" not in str(caught.value)


def test_toml_is_complete_and_reloads_to_the_same_configuration(tmp_path):
    config = build_config(TuneConfig, {"device": "a,b", "max_kl": 0.25, "seed": 9, "learning_rate": 0.017})
    (tmp_path / "c.toml").write_text(to_toml(config))
    assert build_config(TuneConfig, read_toml(tmp_path / "c.toml")) == config
    written = tomllib.loads(to_toml(config))
    unset = {f.name for f in dataclasses.fields(config) if getattr(config, f.name) is None}
    assert set(written) == {f.name for f in dataclasses.fields(config)} - unset


def test_the_hash_names_the_configuration():
    assert config_hash(TuneConfig()) == config_hash(build_config(TuneConfig, {"seed": 0}))
    assert config_hash(TuneConfig()) != config_hash(TuneConfig(seed=1))
    assert config_hash(TuneConfig()) != config_hash(EvaluateConfig())


@pytest.mark.parametrize("content", [b"= 1", b"\xff\xfe", b"a = [1"])
def test_a_file_that_is_no_toml_is_bad_input(tmp_path, content):
    (tmp_path / "c.toml").write_bytes(content)
    with pytest.raises(InputError, match="not valid TOML"):
        read_toml(tmp_path / "c.toml")
    with pytest.raises(InputError, match="cannot be read"):
        read_toml(tmp_path / "none.toml")
