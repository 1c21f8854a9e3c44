"""Acceptance as engines print it, in every command that takes rates."""

import json

import numpy as np
import pytest

import jaxspec as js
from hwmodels import Acceptance, read_trace, write_trace
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.settings import build_config
from jaxspec.settings.acceptance import AcceptanceSource
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.given_acceptance import given_rates, rates_or_known, resolve_acceptance
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.serve.config import ServeConfig
from jaxspec.studies.serve.run import _draft_length

#: Shares of cycles that an engine prints: 2.816 tokens per cycle, and 2.260 if they were conditional rates.
SHARES = (0.757, 0.491, 0.303, 0.157, 0.074, 0.025, 0.009)
LINE = "Mean acceptance length: 2.82, Accepted: 1816 tokens, Drafted: 7000 tokens, Per-position acceptance rate: "

COMMANDS = [PredictConfig, AdviseConfig, ServeConfig, ScaleConfig]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "engine.log"
    path.write_text(f"{LINE}{', '.join(map(str, SHARES))}\n", encoding="utf-8")
    return str(path)


def tokens(rates) -> float:
    return 1.0 + float(np.sum(np.cumprod(rates)))


@pytest.mark.parametrize("kind", COMMANDS)
def test_every_command_takes_what_engines_print(kind, log):
    by_shares = given_rates(build_config(kind, {"acceptance_cumulative": SHARES}))
    assert tokens(by_shares.rates) == pytest.approx(2.816, abs=1e-9)
    by_log = given_rates(build_config(kind, {"acceptance_log": log}))
    np.testing.assert_allclose(by_log.rates, by_shares.rates, rtol=1e-6)
    assert by_log.cycles == pytest.approx(1000)
    solved = given_rates(build_config(kind, {"accepted_per_cycle": 2.82, "draft_length": 7}))
    assert tokens(solved.rates * 7) == pytest.approx(2.82, abs=1e-6)


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"accepted_per_cycle": 2.8}, "draft_length is missing; give the number of tokens"),
        ({"accepted_per_cycle": 9, "draft_length": 7}, "a cycle gains 1 to 8 tokens then"),
        ({"accepted_per_cycle": 0.9, "draft_length": 7}, "accepted_per_cycle is 0.9; allowed is 1 to"),
        ({"acceptance_cumulative": (0.5, 0.6)}, "rises from 0.5 to 0.6 at position 2"),
        ({"acceptance_cumulative": (1.5,)}, "allowed are numbers from 0 to 1"),
        ({"acceptance_cumulative": (0.5,), "acceptance_log": "x"}, "acceptance_cumulative and acceptance_log came"),
        ({"acceptance": (0.5,), "acceptance_log": "x"}, "acceptance would have no effect: acceptance_log says"),
    ],
)
def test_forms_that_contradict_are_refused(kind, given, said):
    with pytest.raises(InputError, match=said):
        build_config(kind, given)


def test_a_log_that_needs_the_draft_length_asks_for_it(tmp_path):
    path = tmp_path / "sglang.log"
    path.write_text("Decode batch. #running-req: 4, accept len: 2.75, accept rate: 0.58,\n", encoding="utf-8")
    with pytest.raises(InputError, match="give draft_length as well"):
        js.predict(acceptance_log=path)
    known = given_rates(PredictConfig(acceptance_log=str(path), draft_length=3))
    assert tokens(known.rates * 3) == pytest.approx(2.75, abs=1e-6)
    assert "2.75 tokens per cycle with 3 drafted tokens, the same at every position" in known.source


def test_another_draft_length_than_that_of_the_log_is_refused(log):
    with pytest.raises(InputError, match="has 7 drafted tokens per cycle, and draft_length is 5"):
        given_rates(PredictConfig(acceptance_log=log, draft_length=5))


def test_a_server_drafts_as_many_tokens_as_its_log(log):
    lengths = [({"acceptance_log": log}, 7), ({"acceptance_log": log, "draft_length": 3}, 3), ({}, 4)]
    lengths += [({"acceptance": (0.9, 0.8)}, 2), ({"accepted_per_cycle": 2.0, "draft_length": 5}, 5)]
    for given, expected in lengths:
        config = ServeConfig(**given)
        assert _draft_length(config, rates_or_known(config, "self", longest=4)) == expected
    with pytest.raises(InputError, match=r"draft_length is 8, but .* has 7 positions"):
        _draft_length(config := ServeConfig(acceptance_log=log, draft_length=8), given_rates(config))
    with pytest.raises(InputError, match="draft_length is 3, but acceptance_cumulative has 2 positions"):
        ServeConfig(acceptance_cumulative=(0.9, 0.8), draft_length=3)


def test_points_take_what_engines_print_too(log):
    scheme = find_scheme("cassandra1")
    law = resolve_acceptance(AcceptanceSource(acceptance_log=log), scheme)
    rates = law.law.conditional({}, 7)
    np.testing.assert_allclose(np.cumprod(rates), SHARES, rtol=1e-4)
    assert law.status == "input"
    one = resolve_acceptance(AcceptanceSource(accepted_per_cycle=2.82, draft_length=7), scheme)
    assert tokens(one.law.conditional({}, 7)) == pytest.approx(2.82, abs=1e-4)
    with pytest.raises(InputError, match="alpha_token and acceptance_cumulative came; give one of"):
        AcceptanceSource(alpha_token=0.5, acceptance_cumulative=SHARES)
    with pytest.raises(InputError, match="draft_length would have no effect"):
        AcceptanceSource(alpha_token=0.5, draft_length=3)


def test_python_takes_an_acceptance_object(tmp_path):
    options = {"architecture": "llama-3.2-1b", "device": "rtx-4090", "scheme": "bf16"}
    found = js.predict(acceptance=Acceptance.from_cumulative(SHARES[:2]), **options)
    same = js.predict(acceptance_cumulative=SHARES[:2], **options)
    read = lambda result: [row.tokens_per_cycle.known for row in result[0].by_draft_length]
    np.testing.assert_allclose(read(found), read(same), rtol=1e-6)
    assert read(same)[-1] == pytest.approx(1 + sum(SHARES[:2]))
    saved = json.loads(same.to_json())
    assert (saved[0] if isinstance(saved, list) else saved)["acceptance"]["source"] == "from shares of all cycles"


@pytest.fixture
def trace(tmp_path):
    rng = np.random.default_rng(5)
    rows = [
        {
            "dataset": ("news", "code")[place % 2],
            "request": str(place),
            "generated_tokens": 40,
            "head": rng.geometric(0.4, 40),
        }
        for place in range(30)
    ]
    write_trace(tmp_path / "trace.jsonl", [row | {"other": rng.geometric(0.7, 40)} for row in rows])
    return str(tmp_path / "trace.jsonl")


@pytest.mark.parametrize("kind", COMMANDS)
def test_every_command_takes_a_trace(kind, trace):
    config = build_config(kind, {"acceptance_trace": trace, "drafter": "head", "dataset": "code"})
    found = given_rates(config, longest=6)
    expected = read_trace(trace, ["head"]).of("code").tokens_per_cycle(6)
    np.testing.assert_allclose(1 + np.cumsum(np.cumprod(found.rates)), expected, rtol=1e-12)
    assert "15 requests of code" in found.source
    assert list(found.by_dataset) == ["news", "code"]


def test_errors_of_a_trace_are_those_over_its_requests(trace):
    found = given_rates(PredictConfig(acceptance_trace=trace, drafter="head"), longest=5)
    drawn = read_trace(trace, ["head"]).bootstrap(5)
    gained = lambda rates: np.cumsum(np.cumprod(rates))
    moved = [(gained(found.rates + 1e-4 * cause) - gained(found.rates)) / 1e-4 for cause in found.error.T]
    np.testing.assert_allclose(np.sum(np.square(moved), axis=0), np.var(drawn, axis=0, ddof=1), rtol=2e-2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "has drafters head, other; give one as drafter"),
        ({"drafter": "none"}, "has no drafter 'none'; it has head, other"),
        ({"drafter": "head", "dataset": "poems"}, "no data set 'poems'; it has news, code"),
    ],
)
def test_a_trace_without_what_is_asked_for_is_refused(trace, given, said):
    with pytest.raises(InputError, match=said):
        given_rates(PredictConfig(acceptance_trace=trace, **given))


def test_predict_counts_along_a_trace(trace):
    options = {"architecture": "llama-3.2-1b", "device": "rtx-4090", "scheme": "bf16", "max_draft_length": 4}
    found = js.predict(acceptance_trace=trace, drafter="head", **options)[0]
    tokens = [row.tokens_per_cycle.known for row in found.by_draft_length]
    np.testing.assert_allclose(tokens[1:], read_trace(trace, ["head"]).tokens_per_cycle(4), rtol=1e-6)
    ends = found.by_draft_length[3].intervals.speedup_vs_stored_ar
    assert ends.low.known < found.by_draft_length[3].speedup_vs_stored_ar.known < ends.high.known
    assert set(found.acceptance.by_dataset) == {"news", "code"}
    assert any(name.endswith("trace.jsonl") for name in found.inputs)
