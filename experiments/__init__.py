"""Reproductions, benchmarks and the training of the embedded network. It imports both packages; nothing imports it."""
