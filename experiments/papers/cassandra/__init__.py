"""Cassandra's area and power (its Table V and VI-D) from units and counts.

Run it with `python -m experiments.papers.cassandra`; it takes a few seconds.

What can be checked is arithmetic: the paper prints areas and powers of the whole, but neither a unit's throughput nor its
clock. Figures of a unit are therefore the printed ones over the number of units (status `input`), the number of units follows
from one fitted whole number (`calibrated`), and nothing in Table V is a prediction.

Differs from the paper in: the SRAM area, whose printed value contradicts its ratio, is replaced where ratios are computed; a
clock of 1 GHz is assumed where rates per second or energies are given; the paper scales nothing to the GPUs' nodes.
"""
