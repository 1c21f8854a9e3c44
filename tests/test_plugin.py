"""A package from outside (`tests/plugin`) adds a scheme, a draft, a unit, a device, an engine and a command, by pip alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).with_name("plugin")

#: Everything that a member passes, and what commands make of it.
USE = """
import jaxspec as js
from hwmodels import catalog
from jaxspec.compress.schemes import SCHEMES
from jaxspec.registries import registry_of
from jaxspec.speculate.drafts import make_draft
from jaxspec.studies import EvaluateConfig, TreeConfig
from jaxspec.testing import check_device, check_draft, check_scheme, check_unit
from jaxspec.testing.drafts import loaded_target

check_scheme(SCHEMES["only-cut"])
check_draft(registry_of("draft")["again"].place, "again")
device = catalog.device("lane-board")
check_unit(device.matrix_unit)
check_device(device)
assert make_draft("again", loaded_target()).draft.name == "again"
assert EvaluateConfig(scheme="only-cut", unread_bits=5).unread_bits == 5
assert TreeConfig(draft="again").draft == "again"
found = js.predict(device="lane-board", scheme="only-cut", unread_bits=6, acceptance=0.9, engine="brisk")
assert found.results[0].device == "lane-board" and found.config.unread_bits == 6
assert js.breakeven(draft_share=0.25).results[0].alpha_token.value == 0.25
own = js.predict(device=device.replace(compute_efficiency=0.5), acceptance=0.9)
assert own.results[0].device.startswith("device-")
"""

#: Whether help of all commands still loads no JAX, nor a module of a scheme.
HELP = """
import sys
from jaxspec.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
assert not {"jax", "stranger"} & set(sys.modules)
"""


def run(folder, *words, code=0):
    """A Python with a folder of packages; what it printed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(PLUGIN.parents[1])])}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which pip has installed the package, without a network."""
    folder = tmp_path_factory.mktemp("installed")
    pip = ("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    run(PLUGIN.parent, *pip, "--target", str(folder), str(PLUGIN))
    return folder


def test_each_thing_is_a_file_and_an_entry_point():
    files = {file.stem for file in (PLUGIN / "stranger").iterdir() if file.suffix in (".py", ".toml")}
    assert files - {"__init__"} == {"only_cut", "again", "lanes", "lane_board", "brisk", "breakeven"}
    lines = (PLUGIN / "pyproject.toml").read_text().partition("[project.entry-points")[2].splitlines()
    assert sum(" = " in line for line in lines) == 6


@pytest.mark.study
def test_its_members_keep_the_contracts_and_every_command_knows_them(installed):
    run(installed, "-c", USE)


def test_help_and_messages_name_its_members(installed):
    shown, _ = run(installed, "-c", HELP)
    assert "breakeven  Of package stranger 1.2; jaxspec breakeven --help explains it." in shown
    shown, _ = run(installed, "-m", "jaxspec", "predict", "--help-all")
    assert "--unread-bits" in shown
    assert "only-cut" in "".join(shown.split())
    _, said = run(installed, "-m", "jaxspec", "tree", "--draft", "agan", code=2)
    assert "did you mean 'again'?" in said
    shown, _ = run(installed, "-m", "jaxspec", "breakeven", "--draft-share", "0.3", "--json", "b.json")
    assert json.loads((installed / "b.json").read_text())["alpha_token"] == 0.3


FAULTS = {
    "scheme": (
        "broken = nobody.is_here:SCHEME",
        "scheme 'broken' of package faulty 3.1 is left out (ModuleNotFoundError: ",
    ),
    "draft": (
        "ngram = faulty:nothing",
        "draft 'ngram' of package faulty 3.1 is left out (the name is taken); update or",
    ),
    "unit": ("odd = faulty:Odd", "unit 'odd' of package faulty 3.1 is left out (unit 'odd' is "),
    "device": ("half = faulty:half.toml", "device 'half' of package faulty 3.1 is left out (EntryError: "),
    "study": (
        "leaves = faulty_leaves:STUDY",
        "study 'leaves' of package faulty 3.1 is left out (SystemExit: 4); update or",
    ),
}

LISTS = """
import jaxspec as js
from jaxspec.registries import registry_of, tell_by
tell_by(print)
for kind in ("scheme", "draft", "unit", "device", "study"):
    assert len(list(registry_of(kind))) >= 8, kind
"""


def test_a_study_takes_no_other_commands_name(tmp_path):
    info = tmp_path / "faulty-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[jaxspec.study]\ndevices = nobody:X\n[jaxspec.devices]\na = nobody:X\n")
    shown, said = run(tmp_path, "-m", "jaxspec", "devices", "--example")
    assert "bandwidth_bytes_per_s" in shown
    group, name = said.splitlines()
    assert group.endswith("'jaxspec.devices' of package faulty 3.1 are left out: did you mean jaxspec.device?")
    assert name.startswith("jaxspec: study 'devices' of package faulty 3.1 is left out (the name is taken); update")


def test_a_faulty_package_is_one_line_and_breaks_nothing(tmp_path):
    info = tmp_path / "faulty-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text(
        "".join(f"[jaxspec.{kind}]\n{entry}\n" for kind, (entry, _) in FAULTS.items())
    )
    (tmp_path / "faulty").mkdir()
    (tmp_path / "faulty" / "__init__.py").write_text("def nothing(): ...\nOdd = 3\n")
    (tmp_path / "faulty" / "half.toml").write_text('title = "Half"\n')
    (tmp_path / "faulty_leaves.py").write_text("raise SystemExit(4)\n")
    shown, _ = run(tmp_path, "-c", LISTS)
    lines = shown.splitlines()
    assert len(lines) == len(FAULTS)
    for line, (_, words) in zip(lines, FAULTS.values(), strict=True):
        assert line.startswith(words)
        assert line.endswith("; update or uninstall the package")
    # Where nothing asks for a member that fails, nothing is said; a command that asks for the registry says it once.
    shown, said = run(tmp_path, "-m", "jaxspec", "--help")
    assert said == ""
    _, said = run(tmp_path, "-m", "jaxspec", "predict", "--scheme", "broken", code=2)
    assert said.count("scheme 'broken' of package faulty 3.1 is left out") == 1
    assert said.splitlines()[-1].startswith("jaxspec: scheme is 'broken'; allowed are")
    _, said = run(tmp_path, "-m", "jaxspec", "leaves", code=2)
    assert said.splitlines()[-1] == "jaxspec: command 'leaves' cannot be loaded; the line above says why"
    assert "(SystemExit: 4)" in said
