"""The papers' tables, reproduced: `python -m experiments.reproduce [PAPER ...]`. `paper` has the declaration of a paper."""
