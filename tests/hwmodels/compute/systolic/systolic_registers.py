"""What simulated systolic arrays share: folds, registers, and values that meet where they must not."""

from typing import NamedTuple


class CollisionError(Exception):
    """Two values meet in one register."""


class Block(NamedTuple):
    """One fold: where it starts in the stationary matrix (or in the product), and how much of the array it uses."""

    top: int
    left: int
    height: int
    width: int


def blocks(height, width, rows, columns):
    return [
        Block(top, left, min(rows, height - top), min(columns, width - left))
        for left in range(0, width, columns)
        for top in range(0, height, rows)
    ]


def grid(rows, columns):
    return [[None] * columns for _ in range(rows)]


def put(registers, place, value):
    if place in registers:
        raise CollisionError(place)
    registers[place] = value
