"""`--help` states every default, range and choice, and states them truly; a flag wins over a file, a file over a default."""

import dataclasses
import re
import typing

import click
import pytest
from click.shell_completion import BashComplete
from command_calls import run

from jaxspec.cli.app import cli
from jaxspec.cli.options import resolve
from jaxspec.settings.coercion import coerce
from jaxspec.settings.fields import choices_of, has_flag, hints, setting_of
from jaxspec.studies import PredictConfig, TuneConfig
from jaxspec.studies.study import STUDIES, find_study

CONFIGS = {name: find_study(name).config for name in STUDIES}


def command(name):
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def options(name):
    return [parameter for parameter in command(name).params if isinstance(parameter, click.Option)]


def stated(option):
    """What stands between the brackets at the end of an option's help: facts, and the default."""
    found = re.search(r"\[([^\[\]]*)\]$", option.help)
    facts = found[1].split("; ") if found else []
    default = next((fact.removeprefix("default: ") for fact in facts if fact.startswith("default: ")), None)
    return facts, default


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_no_default_hides_from_help(name):
    values = command(name).make_context(name, [], resilient_parsing=True).params
    for option in options(name):
        assert option.help, option.name
        assert not option.required or "[required]" in option.help
        # A default of Click's own would win over a file of settings; what can be said no to has none.
        assert values[option.name] in ((False,) if option.is_flag and not option.secondary_opts else (None,)), (
            option.name
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_every_setting_is_an_option_and_states_its_true_default(name):
    kind = CONFIGS[name]
    found = {option.name: option for option in options(name)}
    for field in dataclasses.fields(kind):
        if field.name == find_study(name).argument or not has_flag(hints(kind)[field.name]):
            continue
        option, annotation, about = found[field.name], hints(kind)[field.name], setting_of(field)
        assert option.opts == [about.flag or "--" + field.name.replace("_", "-")]
        facts, default = stated(option)
        if annotation is bool:
            # A flag, which is given without a value.
            assert default == str(field.default)
        elif field.default is None:
            assert default == about.unset != ""
        else:
            # What is stated means the default when it is typed.
            number = (
                typing.get_origin(annotation) is not tuple
                and choices_of(annotation) == ()
                and str not in (annotation, *typing.get_args(annotation))
            )
            typed = annotation(float(default.replace(",", ""))) if number else default
            assert coerce(field.name, typed, annotation, about) == field.default
        if about.high is not None:
            low, high = re.fullmatch(r"(?:more than )?(\S+) to (\S+)", facts[0]).groups()
            assert [float(x.replace(",", "")) for x in (low, high)] == [about.low, about.high]
        if choices := choices_of(annotation):
            assert ", ".join(choices) in facts


@pytest.mark.parametrize(
    ("words", "begun", "offered"),
    [([], "pre", ["predict"]), (["predict"], "--dev", ["--device"]), (["runs"], "sh", ["show"])],
)
def test_the_tab_key_completes_commands_and_flags(words, begun, offered):
    found = BashComplete(cli, {}, "jaxspec", "_JAXSPEC_COMPLETE").get_completions(words, begun)
    assert [item.value for item in found] == offered


def test_flag_over_file_over_quick_over_default(tmp_path):
    (tmp_path / "c.toml").write_text("prompts = 7\nsteps = 9\nbatch = 2\n")
    flags = dict.fromkeys(hints(TuneConfig)) | {"batch": 3}
    config = resolve(TuneConfig, flags, str(tmp_path / "c.toml"), quick=True)
    assert (config.batch, config.steps, config.prompts, config.calibration_prompts, config.seed) == (3, 9, 7, 24, 0)


def test_a_device_that_came_twice_counts_once_and_is_noted(capsys):
    config = resolve(PredictConfig, {"device": "l40s, rtx-4090,l40s", "acceptance": "0.8,0.8"})
    assert config.device == ("l40s", "rtx-4090")
    assert config.acceptance == (0.8, 0.8)
    assert capsys.readouterr().err == "note: device 'l40s' came more than once and counts once\n"


@pytest.mark.parametrize("name", CONFIGS)
def test_help_shows_what_matters_and_help_all_everything(name, capsys):
    (_, first, _), (_, whole, _) = (run(capsys, name, flag) for flag in ("--help", "--help-all"))
    there = lambda text: set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", text.split("Options:\n")[1], re.M))
    assert there(whole) >= {option.opts[0] for option in options(name)}
    assert there(first) <= there(whole)
    more = re.search(r"^(\d+) more settings: jaxspec \S+ --help-all$", first, re.M)
    if more is None:
        assert there(first) == there(whole)
    else:
        assert len(there(first)) <= 22
        assert len(there(whole)) - len(there(first)) == int(more[1])


def test_a_group_is_named_for_what_its_settings_are_about(capsys):
    text = run(capsys, "tune", "--help-all")[1]
    assert re.search(r"^Several devices:\n  --tensor-parallel", text, re.M)
    assert re.search(r"^Further settings:\n  --max-kl", text, re.M)
