"""`jaxspec.<study>`: made from the registry, with the settings, checks and error lines of the command line."""

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from toy_bench import ToyConfig

import jaxspec as js
from jaxspec.cli import main
from jaxspec.errors import InputError
from jaxspec.settings.fields import key_of
from jaxspec.studies.study import STUDIES, find_study

LIGHT = """
import sys
import jaxspec as js
assert {"tune", "predict", "device", "load", "runs"} <= set(dir(js))
assert "jax" not in sys.modules and "matplotlib" not in sys.modules and "pandas" not in sys.modules
import jaxspec.tuning.objective, jaxspec.studies.tune.run, jaxspec.studies
assert callable(js.tune) and js.tune is js.tune and js.runs.list_runs
"""


@pytest.mark.study
def test_the_import_is_light_and_names_stay_functions():
    subprocess.run([sys.executable, "-c", LIGHT], check=True, timeout=120)


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_a_function_with_its_settings(name):
    call, kind = getattr(js, name), find_study(name).config
    names = [key_of(field) for field in dataclasses.fields(kind)]
    parameters = inspect.signature(call).parameters
    assert list(parameters)[: len(names) + 1] == ["config", *names]
    assert call.__name__ == name
    for field, key in zip(dataclasses.fields(kind), names, strict=True):
        assert f"    {key}: " in call.__doc__, key
        if not callable(field.default_factory) and not parameters[key].empty:
            assert parameters[key].default == field.default
    assert "\b" not in call.__doc__


def test_a_new_study_appears_without_an_edit(capfd):
    assert "toy" in dir(js)
    assert "[1 to 9; default: 3]" in js.toy.__doc__
    assert "jaxspec toy --width" not in js.toy.__doc__
    found = js.toy(width=4, device="a,b")
    assert [part.area.value for part in found] == [16, 16]
    assert found.config == ToyConfig(width=4, device=("a", "b"))
    assert found.directory == Path("runs") / found.directory.name
    assert capfd.readouterr() == ("", "")  # the library prints nothing
    with pytest.raises(AttributeError, match="no attribute 'toi'"):
        _ = js.toi


def test_settings_come_from_a_file_a_mapping_a_configuration_and_keywords():
    Path("toy.toml").write_text("width = 5\nseed = 3\n")
    assert js.toy("toy.toml", seed=1).config == ToyConfig(width=5, seed=1)
    assert js.toy({"width": 6}, weights={"a": 2}).config == ToyConfig(width=6, weights={"a": 2.0})
    assert js.toy(ToyConfig(width=7), depth=1).config == ToyConfig(width=7, depth=1.0)
    assert js.toy(quick=True).config == ToyConfig(width=2)
    assert js.toy(out=Path("mine")).directory == Path("mine")


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"width": 10}, ["--width", "10"]),
        ({"width": 1, "depth": 2}, ["--width", "1", "--depth", "2"]),
        ({"device": ""}, ["--device", ""]),
        ({"seed": -1}, ["--seed", "-1"]),
    ],
)
def test_bad_settings_get_the_line_of_the_shell(settings, flags, capsys):
    with pytest.raises(InputError) as caught:
        js.toy(**settings)
    with pytest.raises(SystemExit) as left:
        main(["toy", *flags])
    assert left.value.code == 2
    assert capsys.readouterr().err.strip() == f"jaxspec: {caught.value}"
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: js.toy(widht=3), "unknown setting 'widht'; did you mean 'width'"),
        (lambda: js.toy("missing.toml"), "configuration 'missing.toml' cannot be read"),
        (lambda: js.toy(js.toy), "ToyConfig is needed and function came"),
        (lambda: js.toy(out="/dev/null/x"), "out '/dev/null/x' cannot be written"),
        (lambda: js.export(), "run must be given"),
        (lambda: js.export("a", run="b"), "run came twice"),
        (lambda: js.predict(out="x"), "unknown setting 'out'"),
        (lambda: js.device("rtx-409"), "did you mean 'rtx-4090'"),
        (lambda: js.device(""), "device is ''"),
        (lambda: js.architecture("llama-3.1"), "unknown architecture 'llama-3.1'"),
        (lambda: js.architecture("own"), "architecture 'own' needs a network"),
        (lambda: js.scheme("zip"), "scheme is 'zip'"),
        (lambda: js.scheme("cassandra1").footprint(prune=1), "has no knob 'prune'"),
        (lambda: js.scheme("cassandra1").footprint({"weight_prune": 2}), "weight_prune is 2; allowed is 0 to 0.95"),
        (lambda: js.scheme("cassandra1").footprint({"weight_prune": "much"}), "must be one number"),
        (lambda: js.scheme("cassandra1").footprint(5), "give a mapping"),
    ],
)
def test_unusable_arguments_give_one_line(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_devices_architectures_and_schemes_by_name_and_path(tmp_path):
    from hwmodels import catalog
    from jaxspec.compress import find_scheme
    from jaxspec.models.embedded import embedded_directory

    assert js.device("rtx-4090") == catalog.device("rtx-4090")
    folder = embedded_directory("embedded")
    assert js.architecture(folder) == js.architecture(folder / "config.json") == catalog.architecture("embedded")
    knobs = {"weight_prune": 0.5, "weight_cut_bits": 3, "kv_prune": 0.1, "kv_cut_bits": 2}
    scheme = find_scheme("cassandra1")
    assert js.scheme("cassandra1").footprint(knobs) == scheme.expected_footprint(knobs)
    assert js.scheme("cassandra1").footprint(weight_prune=0.4) == js.scheme("cassandra1").footprint()
    assert "weight_prune" in js.scheme("cassandra1")._repr_html_()
    assert repr(js.scheme("q4_0")) == "<scheme q4_0: no knobs>"
    assert js.__version__
