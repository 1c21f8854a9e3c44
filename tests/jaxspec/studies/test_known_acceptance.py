"""Acceptance where nobody gives any: measured, or published, of that kind of draft, and every output says so first."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.inputs import draft_acceptance
from jaxspec.studies.given_acceptance import TABLE, known_acceptance
from jaxspec.studies.serve.config import ServeConfig
from jaxspec.studies.serve.run import _parts_of_all

MEASURED = known_acceptance("self", "cassandra1")
SMALL = {"architecture": "llama-3.2-1b", "device": "rtx-4090"}


def test_the_measured_draft_is_that_of_the_real_network():
    assert MEASURED.alpha_token == pytest.approx(0.798, abs=5e-4)
    assert MEASURED.status == "measured"
    for word in ("SmolLM2-135M-Instruct", "Spec-Bench", "greedy", "--acceptance-trace"):
        assert word in MEASURED.source
    assert "nearest" not in MEASURED.source


@pytest.mark.parametrize("scheme", [*SCHEME_FACTS, "released"])
def test_a_scheme_nobody_measured_says_which_is_nearest(scheme):
    measured = ("cassandra1", "bit-slices")
    found = known_acceptance("self", scheme)
    near = scheme if scheme in measured else "cassandra1"
    assert found.alpha_token == known_acceptance("self", near).alpha_token
    assert (f"{scheme} was not measured, cassandra1 is the nearest" in found.source) == (scheme not in measured)


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "mtp", "network", "ngram"])
def test_published_kinds_are_input_and_advice_takes_the_same(kind):
    known = known_acceptance(kind, "bf16")
    assert known.status == "input"
    draft = "llama-3.2-1b" if kind == "network" else kind
    advised = draft_acceptance(AdviseConfig(draft=draft, max_draft_length=3))
    np.testing.assert_allclose(advised.conditional, known.alpha_token)
    assert advised.source == known.source
    with pytest.raises(InputError, match="no acceptance of draft 'block' is published"):
        known_acceptance("block")


def test_advice_on_the_compressed_copy_takes_the_measured_one():
    found = draft_acceptance(AdviseConfig(draft="self", scheme="cassandra1"))
    assert found.status == "measured"
    np.testing.assert_allclose(found.error, MEASURED.deviation)


def test_a_server_takes_the_acceptance_of_its_kind_of_draft():
    own = _parts_of_all(ServeConfig(**SMALL))["rtx-4090"].rates
    assert (own.rates, own.status) == ([MEASURED.alpha_token], "measured")
    other = _parts_of_all(ServeConfig(device="rtx-4090", draft_architecture="llama-3.2-1b"))["rtx-4090"].rates
    assert (other.rates, other.status) == ([known_acceptance("network").alpha_token], "input")


def test_the_guide_has_the_numbers_that_commands_take():
    guide = (Path(__file__).parents[3] / "docs" / "pages" / "guide.md").read_text(encoding="utf-8")
    for row in tomllib.loads(TABLE.read_text(encoding="utf-8")).values():
        counted = row["counted"] if row["status"] == "input" else ""
        assert f" | {row['alpha_token']} | {row['deviation']} | {row['status']} | {counted}" in guide
