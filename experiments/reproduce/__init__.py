"""The papers' tables, reproduced: `python -m experiments.reproduce [PAPER ...]`. What a paper declares is in `paper`."""
