"""What test_huffman_cam and test_huffman_columns share."""

import jax
import numpy as np

from jaxspec.formats import huffman, huffman_cam

# 0, 10, 110, 111 for the symbols 9, 4, 1 and 30.
HAND_CODE = huffman.code_of_lengths(np.array([{9: 1, 4: 2, 1: 3, 30: 3}.get(s, 0) for s in range(32)]), max_length=5)


# Compiling is what these tests spend their time on.
encode_bank = jax.jit(huffman_cam.encode_bank, static_argnames="capacity_words")


decode = jax.jit(huffman_cam.decode, static_argnames=("num_symbols", "register_bits"))


def random_code(rng, *, max_length, size=32, skew=4):
    """A code in which every symbol but a few has a codeword."""
    counts = rng.geometric(0.05, size=size) ** skew
    counts[rng.integers(0, size, size=3)] = 0
    return huffman.code_of_lengths(huffman.code_lengths(counts, max_length=max_length), max_length=max_length)
