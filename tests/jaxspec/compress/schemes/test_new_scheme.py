"""A scheme is one file and one line: `only_cut` keeps the contract, and the program takes it from the registry."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import test_scheme_contract as contract
from only_cut import OnlyCut

import jaxspec
from jaxspec.compress.knobs import knob_defaults
from jaxspec.settings.knobs import CUT_AND_PRUNE
from jaxspec.settings.schemes import SchemeFacts

SCHEME = OnlyCut(
    SchemeFacts("only-cut", "high bits of every value", "only_cut:ONLY_CUT", True, CUT_AND_PRUNE[1:2], True, True)
)


def test_it_keeps_the_contract_of_schemes(jit, target, norms, cache):
    assert [spec.name for spec in SCHEME.knob_specs] == ["weight_cut_bits"]
    assert SCHEME.expected_footprint(knob_defaults(SCHEME)).draft_weight_bits["q"] == 12
    contract.test_the_expected_draft_reads_no_more_than_the_target_and_it_no_more_than_16_bits(SCHEME)
    contract.test_every_knob_is_felt_in_the_expected_footprint(SCHEME)
    contract.test_the_hard_draft_is_a_part_of_the_target(jit, SCHEME, target, norms)
    contract.test_kv_seen_for_the_first_time_is_compressed_like_known_kv(jit, SCHEME, cache)
    contract.test_soft_tends_to_hard(jit, SCHEME, target, norms, cache)


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the package with the file and the line."""
    root, source = tmp_path_factory.mktemp("extended"), Path(jaxspec.__file__).parent
    shutil.copytree(source, root / "jaxspec", ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    facts = "facts=SCHEME_FACTS['only-cut']"
    scheme = Path(__file__).with_name("only_cut.py").read_text(encoding="utf-8")
    (root / "jaxspec" / "compress" / "schemes" / "only_cut.py").write_text(
        f"from jaxspec.settings.schemes import SCHEME_FACTS\n{scheme}\n\nONLY_CUT = OnlyCut({facts})\n",
        encoding="utf-8",
    )
    registry = root / "jaxspec" / "settings" / "schemes.py"
    line = "SchemeFacts('only-cut', 'high bits of every value', 'only_cut:ONLY_CUT', True, CUT_AND_PRUNE[1:2], True, True),"
    text = registry.read_text(encoding="utf-8")
    assert text.count("_ALL = (\n") == 1
    registry.write_text(text.replace("_ALL = (\n", f"_ALL = (\n    {line}\n"), encoding="utf-8")
    return root


def run(root, *words):
    """Run the copy's command line; its output."""
    libraries = [str(root), str(Path(jaxspec.__file__).parents[1])]
    code = f"import sys; sys.path[:0] = {libraries}; from jaxspec.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *words], cwd=root, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_takes_it_from_the_registry(extended):
    for command in ("tune", "predict"):
        assert "only-cut" in run(extended, command, "--help")
    shown = run(extended, "predict", "--scheme", "only-cut", "--weight-cut-bits", "6", "--json", "p.json")
    assert "only-cut" in shown
