"""Odd results of a tree search, and its decoding in plain Python."""


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
