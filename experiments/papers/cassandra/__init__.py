"""Cassandra's area and power (its Table V and VI-D) and exponents (Fig. 6): `python -m experiments.reproduce cassandra`."""
