"""Damaged and lying containers: `python -m experiments.fuzz_container --cases 100000 [--seed N]`.

Small containers of every scheme are changed in random places: bytes, sections, the directory; in half of the cases all
checksums are computed anew, so that what stands behind them is met. Opening, reading every tensor as target and as draft, and
unpacking must end in the tensors that were packed or in one line of bad input, within ten seconds and little memory.

300 fixed cases are part of the tests.
"""
