"""Speedups that others measured and published, predicted: `python -m experiments.field`."""
