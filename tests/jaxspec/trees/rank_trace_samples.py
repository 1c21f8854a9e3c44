"""Texts with drafts that rank the vocabulary, their rank traces, and plain Python's ways along them."""

import jax.numpy as jnp
import numpy as np

from jaxspec.trees import ROOT, UNKNOWN, RankTraces, tree_from_parents

#       root
#     0      1        ranks 0 and 2
#    2 3     4        ranks 1 and 0, 0
#    |
#    5                rank 3
RAGGED = tree_from_parents([ROOT, ROOT, 0, 0, 1, 2], rank=[0, 2, 1, 0, 0, 3], size=8)

VOCABULARY = 7


class ToyDraft:
    """A draft that ranks the vocabulary by a hash of all tokens before, and is right often."""

    def __init__(self, text, skew):
        self.text, self.skew = text, skew

    def ranking(self, context):
        rng = np.random.default_rng([len(context), *context])
        order = rng.permutation(VOCABULARY).tolist()
        # Along the text the text's token tends to the front; off it the draft does not know better.
        if context == self.text[: len(context)] and len(context) < len(self.text):
            order.remove(self.text[len(context)])
            order.insert(min(int(rng.geometric(self.skew)) - 1, VOCABULARY - 1), self.text[len(context)])
        return order


def toy_traces(rng, texts, tokens, depth, prompt=3):
    """Texts of different lengths, their drafts, and the traces: root s is the last of prompt + s tokens."""
    lengths = [prompt + tokens + int(rng.integers(0, 4)) for _ in range(texts)]
    whole = [rng.integers(0, VOCABULARY, n).tolist() for n in lengths]
    drafts = [ToyDraft(text, float(rng.uniform(0.35, 0.8))) for text in whole]
    rank = np.full((texts, max(lengths) - prompt, depth), UNKNOWN, np.int32)
    for t, (text, draft) in enumerate(zip(whole, drafts)):
        for start in range(lengths[t] - prompt):
            for d in range(depth):
                place = prompt + start + d
                if place < len(text):
                    rank[t, start, d] = draft.ranking(text[:place]).index(text[place])
    # What only fills the arrays must not be read: not UNKNOWN but a likely rank.
    starts = np.array(lengths) - prompt
    for t, n in enumerate(starts):
        rank[t, n:] = 0
    return whole, drafts, RankTraces(jnp.asarray(rank), jnp.asarray(starts, jnp.int32))


def decode(text, draft, paths, num_tokens, prompt=3):
    """Greedy tree decoding as it is done with networks: draft a token for every node, verify, accept, commit."""
    committed, cycles, accepted = text[:prompt], 0, dict.fromkeys(paths, 0)
    while len(committed) - prompt < num_tokens:
        drafted = {(): []}
        for path in sorted(paths, key=len):
            above = drafted[path[:-1]]
            drafted[path] = [*above, draft.ranking(committed + above)[path[-1]]]
        right = [p for p in drafted if committed + drafted[p] == text[: len(committed) + len(p)]]
        best = max(right, key=len)
        for d in range(1, len(best) + 1):
            accepted[best[:d]] += 1
        committed = text[: len(committed) + len(best) + 1]  # and the target's own token
        cycles += 1
    return cycles, len(committed) - prompt, [accepted[p] for p in paths]


def walk(paths, ranks):
    """The longest beginning of a rank path among the paths, in plain Python."""
    depth = 0
    while depth < len(ranks) and tuple(ranks[: depth + 1]) in paths:
        depth += 1
    return tuple(ranks[:depth])


def renewal(paths, traces, num_tokens):
    """Cycles and tokens per text from one root to the next, in plain Python."""
    found = []
    for rank in np.asarray(traces.rank).tolist():
        at = cycles = 0
        while at < num_tokens:
            at += len(walk(paths, rank[at])) + 1
            cycles += 1
        found.append((cycles, at))
    return np.array(found).T


def paths_of(growth, n):
    found = []
    for above, rank in zip(growth.parent.tolist(), growth.rank.tolist()):
        found.append((*(found[above] if above != ROOT else ()), rank))
    return found[:n]
