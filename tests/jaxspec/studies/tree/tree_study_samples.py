"""Odd results of a tree search, and its decoding in plain Python."""

import copy


def decode_by_hand(parent, rank, ranks, num_tokens):
    """Cycles and tokens of one text: from a root down as long as a child has the text's rank, then one token more."""
    children = {(above, r): node for node, (above, r) in enumerate(zip(parent, rank))}
    start = cycles = 0
    while start < num_tokens:
        node, depth = -1, 0
        while (node, ranks[start][depth]) in children:
            node = children[node, ranks[start][depth]]
            depth += 1
            if depth == len(ranks[start]):
                break
        start, cycles = start + depth + 1, cycles + 1
    return start, cycles


def odd_trees(entry):
    """As it came, and at the ends: tiny and huge speeds, contexts that do not fit, one point, none that pays."""

    def changed(factor, *, speculate=True, fits=True, rows=None):
        found = copy.deepcopy(entry)
        found["contexts"] = found["contexts"][:rows]
        for row in found["contexts"]:
            row["fits"] = fits
            row["decision"]["speculate"] = speculate
            row["effective_performance"] = [factor * x for x in row["effective_performance"]]
            row["ar_bf16_s"] /= factor
            row["ar_stored_s"] /= factor
            for part in (row["decision"], row["decision"]["best_tree"], row["decision"]["best_chain"]):
                part["tokens_per_s"] *= factor
                part["speedup_vs_stored_ar"] *= factor
        return found

    return {
        "as it came": entry,
        "tiny": changed(1e-7),
        "huge": changed(1e7),
        "one context": changed(1.0, rows=1),
        "none pays": changed(0.5, speculate=False, fits=False),
    }
