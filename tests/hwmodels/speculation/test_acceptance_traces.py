"""Traces against loops over the same file, one request, one cycle at a time."""

import jax
import numpy as np
import pytest

from hwmodels import TraceError, chain_cycles, read_trace, tokens_per_cycle, write_trace
from hwmodels.speculation import tokens_to_rates
from hwmodels.speculation.draft_policies import (
    AdditiveLength,
    FastestDraft,
    FixedLength,
    ThresholdLength,
    fastest_way,
    walk_policies,
)

SETS = ("news", "sums", "code")


def requests(count: int, seed: int = 3) -> list[dict]:
    rng = np.random.default_rng(seed)
    rows = []
    for place in range(count):
        tokens = int(rng.integers(1, 90))
        rows.append(
            {"dataset": SETS[place % 3], "request": f"r{place}", "prompt_tokens": place, "generated_tokens": tokens}
        )
        rows[-1] |= {name: rng.geometric(rate, tokens).clip(1, 9) for name, rate in (("head", 0.4), ("lookup", 0.8))}
    return rows


@pytest.fixture(scope="module")
def rows():
    return requests(37)


@pytest.fixture(scope="module")
def path(rows, tmp_path_factory):
    found = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    write_trace(found, rows)
    return found


def cycles_of(gains, length: int) -> int:
    token = cycles = 0
    while token < len(gains):
        token += min(gains[token], length + 1)
        cycles += 1
    return cycles


def test_cycles_of_every_length_are_those_of_a_loop(rows, path):
    lengths = np.arange(0, 17)
    for drafter in ("head", "lookup"):
        found = chain_cycles(read_trace(path, [drafter]), lengths)
        np.testing.assert_array_equal(found, [[cycles_of(row[drafter], k) for k in lengths] for row in rows])


def test_tokens_per_cycle_are_totals_and_have_rates(rows, path):
    trace = read_trace(path, ["head"])
    expected = [
        sum(row["generated_tokens"] for row in rows) / sum(cycles_of(row["head"], k) for row in rows)
        for k in range(1, 13)
    ]
    np.testing.assert_allclose(trace.tokens_per_cycle(12), expected, rtol=1e-14)
    rates = tokens_to_rates(trace.tokens_per_cycle(12))
    np.testing.assert_allclose(tokens_per_cycle(rates), expected, rtol=1e-6)


def test_errors_over_requests_are_those_of_a_ratio(path):
    trace = read_trace(path, ["head"])
    cycles, tokens = chain_cycles(trace, np.array([3]))[:, 0], trace.generated
    ratio = tokens.sum() / cycles.sum()
    expected = np.std(tokens - ratio * cycles) * np.sqrt(len(tokens)) / cycles.sum()
    assert np.std(trace.bootstrap(3, draws=4000)[:, 2]) == pytest.approx(expected, rel=0.1)


def test_several_drafters_keep_requests_of_one_generation(rows, tmp_path):
    other = rows[0] | {"head": [*rows[0]["head"].tolist(), 2]}
    write_trace(tmp_path / "t.jsonl", [other, *rows[1:]])
    assert len(read_trace(tmp_path / "t.jsonl", ["head", "lookup"]).generated) == len(rows) - 1
    assert len(read_trace(tmp_path / "t.jsonl", ["head"]).generated) == len(rows)


@pytest.mark.parametrize(
    ("text", "drafters", "said"),
    [
        ("", (), "has no request"),
        ("{", (), "line 1, is not JSON"),
        ("[1]", (), "line 1, is no table of names"),
        ('{"a": [1]}\n{"a": [1, 0]}', (), "line 2: a is no list of whole numbers from 1"),
        ('{"a": [1.5]}', (), "line 1: a is no list of whole numbers from 1"),
        ('{"a": [1], "b": [2]}', (), "line 1, has drafters a, b; give one as drafter"),
        ('{"a": 1}', (), "line 1, names no drafter; give a list of the tokens"),
        ('{"a": [1]}', ("b",), "line 1, has no drafter 'b'; it has a"),
        ('{"a": [1], "b": [2, 1]}', ("a", "b"), "no request with lists of equal length"),
        ('{"a": [1], "prompt_tokens": -1}', (), "prompt_tokens -1; it must be a whole number from 0"),
    ],
)
def test_files_that_are_no_trace_are_refused(tmp_path, text, drafters, said):
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(TraceError, match=said):
        read_trace(tmp_path / "t.jsonl", drafters)
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "absent.jsonl")


#: Seconds of a cycle, by drafter and draft length from 0 on: a head that costs, a lookup that does not.
SECONDS = np.stack([1.0 + 0.3 * np.arange(7), 1.0 + 0.02 * np.arange(7)])


def walked(row, policy, seconds):
    """One policy, one request, with plain numbers."""
    gains = [np.asarray(row["head"]), np.asarray(row["lookup"])]
    token, cycles, drafted, total = 0, 0, 0, 0.0
    memory = policy.begin()
    while token < len(gains[0]):
        drafter, length = (int(each) for each in policy.choose(memory, seconds))
        here = np.array([int(each[token]) for each in gains])
        accepted = np.int32(min(here[drafter] - 1, length))
        memory = policy.after(memory, type(policy.choose(memory, seconds))(drafter, length), accepted, here)
        token, cycles, drafted = token + accepted + 1, cycles + 1, drafted + length
        total += seconds[drafter, length]
    return cycles, drafted, total


POLICIES = [
    [FixedLength(0, 3), FixedLength(1, 6), FixedLength(0, 0)],
    [AdditiveLength(0, 2, 6), AdditiveLength(1, 1, 4)],
    [ThresholdLength(0, 4, 1.2, 0.2, 5), ThresholdLength(1, 2, 0.3, 0.1, 3)],
    [FastestDraft(0.1, 0.5, 4.0, np.array([0, 1])), FastestDraft(0.02, 0.7, 10.0, np.array([0, 0]))],
]


@pytest.mark.parametrize("policies", POLICIES, ids=lambda policies: type(policies[0]).__name__)
def test_a_policy_walks_as_a_loop_does(path, rows, policies):
    trace = read_trace(path, ["head", "lookup"])
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *policies)
    found = walk_policies(trace, together, np.tile(SECONDS, (len(policies), 1, 1)))
    for place in (0, 5, 22, 36):
        for lane, policy in enumerate(policies):
            expected = walked(rows[place], policy, SECONDS)
            assert (found.cycles[place, lane], found.drafted[place, lane]) == expected[:2]
            assert found.seconds[place, lane] == pytest.approx(expected[2], rel=1e-5)


def best_seconds(gains, seconds) -> float:
    """By trying every drafter and length at every token, from the end."""
    tokens = len(gains[0])
    best = [0.0] * (tokens + 1)
    for token in reversed(range(tokens)):
        best[token] = min(
            seconds[drafter, length] + best[min(token + min(each[token], length + 1), tokens)]
            for drafter, each in enumerate(gains)
            for length in range(seconds.shape[1])
        )
    return best[0]


def test_the_fastest_way_is_that_of_trying_everything(path, rows):
    trace = read_trace(path, ["head", "lookup"])
    cases = np.stack([SECONDS, 1.0 + 2 * (SECONDS - 1)])
    found = fastest_way(trace, cases)
    expected = [[best_seconds([row["head"], row["lookup"]], case) for case in cases] for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    fixed = walk_policies(trace, FixedLength(np.zeros(7, int), np.arange(7)), np.tile(SECONDS, (7, 1, 1))).seconds
    assert np.all(found[:, :1] <= fixed * (1 + 1e-5))
