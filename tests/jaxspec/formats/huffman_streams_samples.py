"""What test_huffman_streams and test_huffman_streams_damaged share."""

import numpy as np

#: How often each of 256 symbols occurs, by kind of code.
COUNTS = {
    "one symbol": np.eye(1, 256, 200, dtype=np.int64)[0],
    "all lengths": np.concatenate([np.zeros(31, np.int64), 1 << np.arange(13), np.zeros(212, np.int64)]),
    "all symbols": np.full(256, 3),
    "uneven": np.random.default_rng(0).geometric(0.02, size=256) - 1,
}


A, B, C, D = range(4)


def by_lane(streams):
    words, starts = np.asarray(streams.words), np.asarray(streams.starts)
    return [words[start : start + count].tolist() for start, count in zip(starts, np.asarray(streams.word_counts))]
