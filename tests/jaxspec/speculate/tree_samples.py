"""Trees to decode with: extreme shapes, and any."""

from hypothesis import strategies as st

from jaxspec.trees import chain_like_paths, chain_paths, star_paths, tree_from_parents

#: What a cycle costs grows with the square: each level may hold all nodes.
MOST_NODES = 24

SHAPES = {
    "chain": chain_paths(MOST_NODES),
    "star": star_paths(MOST_NODES),
    "chain-like": chain_like_paths(MOST_NODES),
    "one node": chain_paths(1),
    "late ranks": ((5,), (63,), (5, 7), (5, 0), (63, 1), (63, 1, 2)),
}


@st.composite
def trees(draw):
    """Any tree of 1 to 24 nodes, numbered in any order that has parents first, with ranks left out."""
    size = draw(st.integers(1, MOST_NODES))
    reach = draw(st.sampled_from([1, 3, MOST_NODES]))  # 1: chains; 24: bushes
    parent = [draw(st.integers(max(-1, node - reach), node - 1)) for node in range(size)]
    used = {}
    rank = []
    for above in parent:
        taken = used.setdefault(above, set())
        free = [r for r in range(64) if r not in taken]
        taken.add(free[draw(st.integers(0, min(2, len(free) - 1)))] if draw(st.booleans()) else free[0])
        rank.append((taken - {r for a, r in zip(parent, rank) if a == above}).pop())
    return tree_from_parents(parent, rank=rank, size=MOST_NODES)
