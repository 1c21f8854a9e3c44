"""Compiled programs that the command line keeps, and names that load on first use."""

import os
import subprocess
import sys

import pytest

from jaxspec.kept_programs import programs_folder

VARIABLES = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_COMPILATION_CACHE_MAX_SIZE",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
)

#: Prints what JAX would read after the command line began.
BEGIN = """
import os, sys
from jaxspec.cli.app import cli
cli.main([*sys.argv[1:], "devices"], standalone_mode=False)
print("VARIABLES", [os.environ.get(name) for name in {variables!r}], file=sys.stderr)
"""


def variables(*arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-c", BEGIN.format(variables=VARIABLES), *arguments]
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True, check=True)
    return next(line for line in done.stderr.splitlines() if line.startswith("VARIABLES"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return programs_folder()


def test_programs_are_kept_in_the_users_caches(folder, tmp_path):
    assert folder.is_relative_to(tmp_path / "jaxspec")
    found = variables(XDG_CACHE_HOME=str(tmp_path))
    assert str(folder) in found
    assert folder.is_dir()
    assert str(1 << 28) in found


@pytest.mark.signals
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--no-keep-programs"], {}), ([], {"JAXSPEC_KEEP_PROGRAMS": "0"})],
)
def test_programs_are_not_kept_where_that_is_refused(folder, tmp_path, arguments, environment):
    assert "[None, None, None]" in variables(*arguments, XDG_CACHE_HOME=str(tmp_path), **environment)
    assert not folder.exists()


@pytest.mark.signals
def test_a_cache_that_the_user_names_stays(folder, tmp_path):
    own = str(tmp_path / "own")
    assert f"[{own!r}, None, None]" in variables(XDG_CACHE_HOME=str(tmp_path), JAX_COMPILATION_CACHE_DIR=own)
    assert not folder.exists()


@pytest.mark.signals
def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert "[None, None, None]" in variables(XDG_CACHE_HOME=str(tmp_path / "file"))


def test_a_prediction_loads_neither_networks_nor_figures():
    code = (
        "import importlib, sys; importlib.import_module('jaxspec.studies.predict.run');"
        "importlib.import_module('jaxspec.studies.predict.view');"
        "print([name for name in ('flax.nnx', 'matplotlib', 'scipy.optimize', 'optax') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_public_name_is_not_the_module_of_that_name():
    import jaxspec.speculate.drafts.self_draft

    assert callable(jaxspec.speculate.drafts.self_draft)
    with pytest.raises(AttributeError, match="has no attribute 'self_drft'"):
        _ = jaxspec.speculate.drafts.self_drft
