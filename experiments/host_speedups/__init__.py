"""Speedups of speculation on this machine: predicted, written down, then timed."""
