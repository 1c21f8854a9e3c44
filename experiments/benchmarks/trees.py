"""Simulation and search of draft trees, beside the plain Python that one would write first.

    python -m experiments.benchmarks tree_simulation tree_search trace_walks

Simulations are rates of whole trials. The loops draw as the simulations do, from the same probabilities, and both must agree
with the exact expectation. Searches find the same trees, from tables with as many ranks as drafts list.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks.harness import median_s, row
from hwmodels import AcceptanceTrace, chain_cycles
from jaxspec.trees import (
    ROOT,
    SimulatedTokens,
    Tree,
    children_table,
    expected_tokens,
    most_children,
    node_acceptance,
    node_draw_probability,
    parent_list,
    public_tree,
    simulate_nodes,
    simulate_walks,
    tokens_variance,
)
from jaxspec.trees.searches import expected_tokens_by_size, greedy_growth, optimal_trees

#: Trials of one call of the simulations, and of the loops, which need fewer to be timed.
TRIALS, LOOPED_TRIALS = 1 << 22, 10_000

#: Trials per second and seconds that a sweep over trees asks for.
NODE_TARGET, WALK_TARGET, PROGRAMME_TARGET_S = 1e6, 1e7, 0.1

#: Shape of the searches.
NODES, DEPTH, RANKS = 128, 10, 32


def _example() -> tuple[Tree, jax.Array]:
    """A tree of 64 nodes, all of them reached now and then."""
    tree = public_tree("chain_like_64")
    depth, ranks = int(tree.depth.max()), int(tree.rank.max()) + 1
    table = np.tile(0.6 * 4.0 ** -np.arange(ranks), (depth, 1))
    return tree, node_acceptance(tree, jnp.asarray(table, jnp.float32))


def loop_over_nodes(tree: Tree, acceptance: jax.Array, trials: int, *, at_once: bool) -> Callable[[], float]:
    """Mean tokens of trials one after the other: a random number for each node, and each node in turn.

    Args:
        at_once: draw a trial's numbers with one call of NumPy, which is faster, and not with one for each.
    """
    chances = np.asarray(node_draw_probability(tree, acceptance)).tolist()
    parents, depths = parent_list(tree), np.asarray(tree.depth).tolist()
    rng = np.random.default_rng(0)

    def run() -> float:
        gained = 0
        for _ in range(trials):
            draws = rng.random(len(parents)).tolist() if at_once else [rng.random() for _ in parents]
            accepted = [False] * len(parents)
            taken = [False] * (len(parents) + 1)  # whether a child was accepted; that of the root is last
            deepest = 0
            for node, above in enumerate(parents):
                if (above == ROOT or accepted[above]) and not taken[above] and draws[node] < chances[node]:
                    accepted[node] = taken[above] = True
                    deepest = depths[node]
            gained += 1 + deepest
        return gained / trials

    return run


def loop_of_walks(tree: Tree, acceptance: jax.Array, trials: int) -> Callable[[], float]:
    """Mean tokens of trials one after the other: from the root down, a random number for each level."""
    chances = np.asarray(acceptance).tolist()
    children = [[c for c in row if c >= 0] for row in np.asarray(children_table(tree)).tolist()]
    rng = np.random.default_rng(0)

    def run() -> float:
        gained = 0
        for _ in range(trials):
            node, going = ROOT, True
            while going:
                gained += 1
                draw, going = rng.random(), False
                for child in children[node + 1]:
                    draw -= chances[child]
                    if draw < 0:
                        node, going = child, True
                        break
        return gained / trials

    return run


def tree_simulation(trials: int = TRIALS, looped: int = LOOPED_TRIALS) -> list[dict[str, Any]]:
    """Trials per second on a tree of 64 nodes: a draw for each node, and a draw for each level."""
    tree, acceptance = _example()
    assert int(tree.num_nodes) == 64
    exact = float(expected_tokens(tree, acceptance))
    spread = float(tokens_variance(tree, acceptance)) ** 0.5
    by_node = partial(loop_over_nodes, tree, acceptance, looped)
    cases: list[tuple[str, Callable[..., SimulatedTokens], dict[str, Callable[[], float]], float]] = [
        (
            "a draw per node",
            simulate_nodes,
            {
                "a Python loop, a NumPy call per number": by_node(at_once=False),
                "a Python loop, a NumPy call per trial": by_node(at_once=True),
            },
            NODE_TARGET,
        ),
        (
            "a draw per level",
            partial(simulate_walks, max_children=most_children(tree)),
            {"a Python loop, a NumPy call per number": loop_of_walks(tree, acceptance, looped)},
            WALK_TARGET,
        ),
    ]
    rows = []
    for what, simulate, loops, target in cases:
        key = iter(jax.random.split(jax.random.key(1), 99))
        started = time.perf_counter()
        mean = float(simulate(tree, acceptance, next(key), num_trials=trials).mean)
        first_call_s = time.perf_counter() - started
        for simulated, number in [(mean, trials), *((loop(), looped) for loop in loops.values())]:
            gap = (simulated - exact) / (spread / number**0.5)
            assert abs(gap) < 5, f"{what}: {simulated:.5f} tokens per cycle, {gap:.1f} standard errors from {exact:.5f}"
        rate = trials / median_s(lambda: simulate(tree, acceptance, next(key), num_trials=trials))  # noqa: B023
        workload = (
            f"{what}, 64 nodes, {exact:.2f} tokens per cycle; target {target:.0e}, first call {first_call_s:.1f} s"
        )
        for name, loop in loops.items():
            peer = looped / median_s(loop, repeats=3)
            timed = row("tree_simulation", workload, rate, peer, name, "trials/s", rate / peer)
            rows.append(timed | {"first_call_s": first_call_s, "target": target})
    return rows


def plain_programme(table: np.ndarray, nodes: int) -> list[float]:
    """Most expected tokens of 0..nodes nodes by the same dynamic programme, in loops over depth, rank, size and share."""
    depth, ranks = table.shape
    chances = np.sort(table, axis=1)[:, ::-1].tolist()
    nothing = float("-inf")
    below = [0.0] + [nothing] * nodes  # below a node of the last level there is only the tree of no node
    for level in reversed(range(depth)):
        later = [0.0] + [nothing] * nodes
        for rank in reversed(range(ranks)):
            chance, best = chances[level][rank], list(later)
            for share in range(1, nodes + 1):
                if below[share - 1] == nothing:
                    break
                gain = chance * (1.0 + below[share - 1])
                for total in range(share, nodes + 1):
                    candidate = gain + later[total - share]
                    if candidate > best[total]:
                        best[total] = candidate
            later = best
        below = later
    return [1.0 + gain for gain in below]


def plain_greedy(table: np.ndarray, nodes: int) -> list[float]:
    """Expected tokens of 0..nodes nodes grown one by one, each time after a look at every child that could be added."""
    depth, ranks = table.shape
    chances = table.tolist()
    chosen: dict[tuple[int, ...], float] = {(): 1.0}
    tokens = [1.0]
    for _ in range(nodes):
        best, worth = (), -1.0
        for path, reached in chosen.items():
            if len(path) == depth:
                continue
            for rank in range(ranks):
                if reached * chances[len(path)][rank] > worth and (*path, rank) not in chosen:
                    best, worth = (*path, rank), reached * chances[len(path)][rank]
        chosen[best] = worth
        tokens.append(tokens[-1] + worth)
    return tokens


def tree_search() -> list[dict[str, Any]]:
    """The best trees of all sizes to 128 nodes, depth 10 and 32 ranks: the dynamic programme, and greedy growth."""
    rng = np.random.default_rng(0)
    tables = [rng.dirichlet(np.full(RANKS + 1, 0.3), DEPTH)[:, :RANKS] for _ in range(16)]
    traces = 0

    @jax.jit
    def programme(table: jax.Array) -> Any:
        nonlocal traces
        traces += 1
        return optimal_trees(table, max_nodes=NODES)

    started = time.perf_counter()
    values = jax.block_until_ready(programme(jnp.asarray(tables[0], jnp.float32))).expected_tokens
    first_call_s = time.perf_counter() - started
    np.testing.assert_allclose(values, plain_programme(tables[0], NODES), rtol=1e-5)
    np.testing.assert_allclose(values, plain_greedy(tables[0], NODES), rtol=1e-5)
    grown = expected_tokens_by_size(greedy_growth(tables[0], NODES), jnp.asarray(tables[0], jnp.float32))
    np.testing.assert_allclose(values, grown, rtol=1e-5)

    others = iter([jnp.asarray(table, jnp.float32) for table in tables[1:]])
    ours = median_s(lambda: programme(next(others)), repeats=7)
    assert traces == 1, f"{traces} traces, though only values changed"
    loops = median_s(lambda: plain_programme(tables[1], NODES), repeats=3)
    shape = f"all sizes to {NODES} nodes, depth {DEPTH}, {RANKS} ranks"
    workload = f"dynamic programme, {shape}; target {PROGRAMME_TARGET_S} s, first call {first_call_s:.1f} s"
    rows = [row("tree_search", workload, ours, loops, "the same programme in Python loops", "s", loops / ours)]
    rows[0] |= {"first_call_s": first_call_s, "target": PROGRAMME_TARGET_S}

    scan = median_s(lambda: plain_greedy(tables[1], NODES), repeats=3)
    rows.append(
        row("tree_search", f"dynamic programme, {shape}", ours, scan, "greedy, a look at every child", "s", scan / ours)
    )
    heap = median_s(lambda: greedy_growth(tables[1], NODES))
    workload = f"greedy growth with a heap, on the host, {shape}"
    rows.append(row("tree_search", workload, heap, scan, "greedy, a look at every child", "s", scan / heap))
    return rows


def trace_walks(requests: int = 1400, lengths: int = 256) -> dict[str, Any]:
    """Chains walked along an acceptance trace, all requests and draft lengths together, beside a loop over each of them."""
    rng = np.random.default_rng(0)
    tokens = rng.geometric(1 / 350, requests)
    gained = rng.geometric(0.38, (1, int(tokens.sum()))).clip(1, 20).astype(np.int16)
    names = ("",) * requests
    trace = AcceptanceTrace(gained, tokens, np.zeros(requests, int), names, names, ("head",))
    asked = np.resize(np.arange(1, 17), lengths)
    walked = chain_cycles(trace, asked)

    def loop(few: int) -> list[list[int]]:
        starts = np.concatenate([[0], np.cumsum(tokens)])
        counted = []
        for first, last in itertools.pairwise(starts[: few + 1].tolist()):
            gains, row = gained[0, first:last].tolist(), []
            for length in range(1, 17):
                token = cycles = 0
                while token < len(gains):
                    token += min(gains[token], length + 1)
                    cycles += 1
                row.append(cycles)
            counted.append(row)
        return counted

    few = 40
    np.testing.assert_array_equal(walked[:few, :16], loop(few))
    ours = requests * lengths / median_s(lambda: chain_cycles(trace, asked))
    peer = 16 * few / median_s(lambda: loop(few), repeats=3)
    workload = (
        f"{requests} requests of {tokens.mean():.0f} tokens, {lengths} policies of 1 to 16 drafted tokens; target 1e+06"
    )
    return row("trace_walks", workload, ours, peer, "a Python loop over cycles", "requests x policies/s", ours / peer)
