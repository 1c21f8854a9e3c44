"""Cassandra: speedups, exponents, trade-off, memory, area and power: `python -m experiments.reproduce cassandra`."""
