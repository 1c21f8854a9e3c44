"""Ways to decode, timed: what is counted is decoding's own, and parts of a cycle come out of a clock that is known."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxspec.host import stopwatch
from jaxspec.host.stopwatch import AUTOREGRESSIVE, Clocked, chain_way, time_ways, tree_way
from jaxspec.models import DecoderConfig
from jaxspec.speculate import GREEDY, chain_limits, decode
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import NGramDraft, NGramParams, ReadyDraft
from jaxspec.speculate.loop import Request
from jaxspec.trees import tree_from_paths

pytestmark = pytest.mark.network

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=8, intermediate_size=12, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=4
)
DRAFT = ReadyDraft(NGramDraft(CONFIG.vocab_size), NGramParams())
PROMPTS = np.random.default_rng(5).integers(0, 11, (5, 7)).astype(np.int32)
LENGTHS = np.array([7, 5, 6, 7, 7], np.int32)
WAYS = {"chain": chain_way(DRAFT, 2, GREEDY), "tree": tree_way(DRAFT, tree_from_paths([(0,), (1,), (0, 0)]))}
#: Seconds of a cycle by width and draft, and of everything before the first.
CYCLE_S = {(0, None): 1.0, (2, "none"): 1.5, (2, "ngram"): 2.5, (3, "none"): 1.75, (3, "ngram"): 4.75}
PROMPT_S = 0.625


@pytest.fixture(scope="module")
def network(random_network):
    return random_network(CONFIG, 3, sharpness=2.0)


def known_clock(kinds, blocks, repeats, *, seed, warm, advance):
    """A stand-in for the clock: every cycle takes what `CYCLE_S` says, in round r (1 + r) times as much."""
    found = Clocked({}, {}, {})
    for block in blocks:
        for name, calls in block.items():
            results = [jax.device_get(call()) for call in calls]
            each_s = CYCLE_S[kinds[name[0]]]
            once = np.array([PROMPT_S + each_s * result.cycles.max() for result in results])
            found.first_s[name], found.results[name] = [once[0] + 30.0, once[1]], results
            found.seconds[name] = np.outer(1.0 + np.arange(repeats), once)
            advance()
    warm(found.results)
    return found


@pytest.fixture(scope="module")
def timed(network):
    kinds = {AUTOREGRESSIVE: (0, None), "chain": (2, "ngram"), "tree": (3, "ngram")}
    kinds |= {(way.limits, way.law): (way.limits.nodes, "none") for way in WAYS.values()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stopwatch, "interleave", partial(known_clock, kinds))
        prompts = Prompts(PROMPTS, num_tokens=12, decoding=GREEDY, seed=0, lengths=LENGTHS)
        return time_ways(network, CONFIG, prompts, WAYS, batch=2, repeats=3)


def test_parts_of_a_cycle_are_those_of_the_clock(timed):
    alone, chain, tree = timed[AUTOREGRESSIVE], timed["chain"], timed["tree"]
    rounds = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(alone.cycle_s, 1.0 * rounds)
    np.testing.assert_allclose(alone.verify_s, 1.0 * rounds)
    np.testing.assert_allclose(alone.draft_step_s, 0.0)
    np.testing.assert_allclose(chain.verify_s, 1.5 * rounds)
    np.testing.assert_allclose(chain.draft_step_s, 0.5 * rounds)  # (2.5 - 1.5) / 2 steps
    np.testing.assert_allclose(tree.draft_step_s, 1.5 * rounds)  # (4.75 - 1.75) / 2 levels
    np.testing.assert_allclose(tree.cycle_over_step, 4.75)
    assert chain.compile_s == pytest.approx(30.0 - (2.0 - 1.0) * (PROMPT_S + 2.5))  # beyond the middle round


def test_counts_are_those_of_decoding(network, timed):
    """4 of 5 prompts make whole batches of 2; turns are those of the slower sequence, behind the first cycle."""
    tokens, turns, cycles, generated = 0, 0, 0, 0
    for rows in ([0, 1], [2, 3]):
        ends = [
            decode(
                network,
                DRAFT.params,
                Request(PROMPTS[rows], np.array(rows), jax.random.key(0), count, LENGTHS[rows], np.zeros(0, np.int32)),
                WAYS["chain"].tree,
                GREEDY,
                draft=DRAFT.draft,
                config=CONFIG,
                room=12,
                limits=chain_limits(3),
            )
            for count in (1, 12)
        ]
        tokens += int(ends[1].generated.sum() - ends[0].generated.sum())
        turns += int(ends[1].cycles.max() - ends[0].cycles.max())
        generated, cycles = generated + int(ends[1].generated.sum()), cycles + int(ends[1].cycles.sum())
    chain = timed["chain"]
    assert (chain.tokens, chain.turns) == (tokens, turns)
    assert chain.tokens_per_cycle == pytest.approx(generated / cycles)
    assert (timed[AUTOREGRESSIVE].tokens, timed[AUTOREGRESSIVE].turns) == (44, 22)
    assert chain.agree == timed["tree"].agree == 1.0
    np.testing.assert_allclose(chain.speedup(timed[AUTOREGRESSIVE]), tokens / turns / 2.0 / 2.5)
    np.testing.assert_allclose(chain.tokens_per_s, tokens / turns / 2.5 / np.array([1.0, 2.0, 3.0]))


def timed_as(seconds, network, monkeypatch):
    """Ways of one batch by a clock that says what `seconds` has of (way, round): decoding to the end beyond the first cycle."""

    def clock(blocks, repeats, *, warm, **_):
        found = Clocked({}, {}, {})
        for block in blocks:
            for name, calls in block.items():
                found.first_s[name], found.results[name] = [1.0, 1.0], [jax.device_get(call()) for call in calls]
                found.seconds[name] = np.stack(
                    [np.zeros(repeats), seconds[name[0] if name[0] in seconds else "verify"]], axis=1
                )
        warm(found.results)
        return found

    monkeypatch.setattr(stopwatch, "interleave", clock)
    prompts = Prompts(PROMPTS, num_tokens=12, decoding=GREEDY, seed=0, lengths=LENGTHS)
    return time_ways(network, CONFIG, prompts, {"chain": WAYS["chain"]}, batch=5, repeats=4)


def test_differences_that_are_lost_in_their_noise_are_no_rates(network, monkeypatch):
    """Rounds: both are known, the cycle is lost, decoding without speculation is, both are."""
    seconds = {AUTOREGRESSIVE: [2.0, 2.0, -2.0, -2.0], "chain": [1.0, -1.0, 1.0, -1.0], "verify": [0.5, 0.5, 0.5, 0.5]}
    found = timed_as({name: np.array(each) for name, each in seconds.items()}, network, monkeypatch)
    alone, chain = found[AUTOREGRESSIVE], found["chain"]
    speedup = chain.speedup(alone)
    # All programs generate the same tokens, so that a speedup is a ratio of times.
    np.testing.assert_allclose(speedup, [chain.tokens / alone.tokens * 2.0, np.inf, -np.inf, np.nan], rtol=1e-6)
    assert chain.tokens_per_s[0] == pytest.approx(chain.tokens / 1.0)
    np.testing.assert_array_equal(chain.tokens_per_s[[1, 3]], np.inf)
    assert np.isfinite(chain.tokens_per_s[[0, 2]]).all()
