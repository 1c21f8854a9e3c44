"""Systolic arrays simulated register by register, a cycle at a time: nothing here knows a formula for cycles or reads.

Every value sits in a register of an element and moves one element per cycle. Cycles are counted until the last value has
left, reads and writes where values cross the array's border. Zeros that pad a fold to the array are not read.
"""

from typing import NamedTuple

import numpy as np


class CollisionError(Exception):
    """Two values meet in one register."""


class Run(NamedTuple):
    product: np.ndarray
    cycles: int
    input_reads: int
    weight_reads: int
    output_accesses: int


class Block(NamedTuple):
    """One fold: where it starts in the stationary matrix (or in the product), and how much of the array it uses."""

    top: int
    left: int
    height: int
    width: int


def simulate(dataflow, convention, rows, columns, inputs, weights, interval=None):
    """A product of whole matrices; `interval` is that of the pipelined convention, in cycles from wave to wave."""
    if dataflow == "os":
        machine = OutputStationary(rows, columns, inputs, weights)
        cycles = machine.run(convention, interval)
        return Run(machine.product, cycles, machine.left_reads, machine.top_reads, machine.accesses)
    if dataflow == "ws":
        machine = OperandStationary(rows, columns, inputs, weights)
        cycles = machine.run(convention, interval)
        return Run(machine.product, cycles, machine.stream_reads, machine.held_reads, machine.accesses)
    # The same machine for the transposed product, with weights streaming past inputs.
    machine = OperandStationary(rows, columns, weights.T, inputs.T)
    cycles = machine.run(convention, interval)
    return Run(machine.product.T, cycles, machine.held_reads, machine.stream_reads, machine.accesses)


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


class OperandStationary:
    """One matrix sits in the array, the other streams in from the left, partial sums fall out at the bottom."""

    def __init__(self, rows, columns, stream, held):
        self.rows, self.columns, self.stream, self.held = rows, columns, stream, held
        self.steps = len(stream)
        self.product = np.zeros((self.steps, held.shape[1]), int)
        self.folds = blocks(*held.shape, rows, columns)
        self.stream_reads = self.held_reads = self.accesses = 0

    def run(self, convention, interval):
        if convention == "pipelined":
            return self.run_pipelined(interval)
        overlapped = convention == "double_buffered"
        cycles, loaded = 0, None
        for number, fold in enumerate(self.folds):
            if loaded is None:
                loading = Loader(self, fold)
                while not loading.finished:
                    loading.shift()
                    cycles += 1
                loaded = loading.plane
            following = self.folds[number + 1 : number + 2]
            loading = Loader(self, following[0]) if overlapped and following else None
            wave = Wave(self, fold, loaded)
            while not (wave.finished and (loading is None or loading.finished)):
                wave.cycle()
                if loading is not None and not loading.finished:
                    loading.shift()
                cycles += 1
            loaded = loading.plane if loading else None
        return cycles

    def read_held(self, fold, row, column):
        if row >= fold.height or column >= fold.width:
            return 0
        self.held_reads += 1
        return self.held[fold.top + row, fold.left + column]

    def read_stream(self, fold, step, row):
        if row >= fold.height:
            return 0
        self.stream_reads += 1
        return self.stream[step, fold.top + row]

    def add_to_output(self, fold, step, column, value):
        if column < fold.width:
            self.accesses += 1 if fold.top == 0 else 2
            self.product[step, fold.left + column] += value

    def run_pipelined(self, interval):
        """Each element has a register for the next fold, and changes over when the next fold's wave reaches it.

        Loads travel down beside the partial sums and are kept by the row they are for; column j starts j cycles late.
        """
        entering_left, entering_top = {}, {}
        for number, fold in enumerate(self.folds):
            start = self.rows + number * interval
            for row in range(self.rows):
                for step in range(self.steps):
                    value = (number, step, self.read_stream(fold, step, row))
                    put(entering_left, (start + step + row, row), value)
                for column in range(self.columns):
                    value = (number, row, self.read_held(fold, row, column))
                    put(entering_top, (start - self.rows + row + column, column), value)
        now = [[-1, 0] for _ in range(self.rows * self.columns)]
        following = {}
        right, down, load = (grid(self.rows, self.columns) for _ in range(3))
        cycle, remaining = 0, len(self.folds) * self.steps * self.columns
        while remaining:
            new_right, new_down, new_load = (grid(self.rows, self.columns) for _ in range(3))
            for i in range(self.rows):
                for j in range(self.columns):
                    token = right[i][j - 1] if j else entering_left.get((cycle, i))
                    if token is not None:
                        number, step, value = token
                        element = now[i * self.columns + j]
                        if element[0] != number:
                            element[:] = following.pop((i, j))
                            assert element[0] == number
                        above = down[i - 1][j] if i else (number, step, 0)
                        assert above[:2] == (number, step)
                        new_right[i][j] = token
                        new_down[i][j] = (number, step, above[2] + value * element[1])
                    token = load[i - 1][j] if i else entering_top.get((cycle, j))
                    if token is not None and token[1] == i:
                        put(following, (i, j), (token[0], token[2]))
                    elif token is not None:
                        new_load[i][j] = token
            right, down, load = new_right, new_down, new_load
            for j, token in enumerate(down[-1]):
                if token is not None:
                    self.add_to_output(self.folds[token[0]], token[1], j, token[2])
                    remaining -= 1
            cycle += 1
        return cycle


class Loader:
    """Shifts one fold of the stationary matrix in from the top, its last row first."""

    def __init__(self, machine, fold):
        self.machine, self.fold = machine, fold
        self.plane = grid(machine.rows, machine.columns)
        self.next_row = machine.rows - 1

    @property
    def finished(self):
        return self.plane[-1][0] is not None

    def shift(self):
        row = [self.machine.read_held(self.fold, self.next_row, j) for j in range(self.machine.columns)]
        self.plane = [row, *self.plane[:-1]]
        self.next_row -= 1


class Wave:
    """The stream of one fold through a loaded array."""

    def __init__(self, machine, fold, plane):
        self.machine, self.fold, self.plane = machine, fold, plane
        self.right, self.down = grid(machine.rows, machine.columns), grid(machine.rows, machine.columns)
        self.time, self.remaining = 0, machine.steps * machine.columns

    @property
    def finished(self):
        return self.remaining == 0

    def enter(self, row):
        step = self.time - row
        if not 0 <= step < self.machine.steps:
            return None
        return step, self.machine.read_stream(self.fold, step, row)

    def cycle(self):
        rows, columns = self.machine.rows, self.machine.columns
        new_right, new_down = grid(rows, columns), grid(rows, columns)
        for i in range(rows):
            for j in range(columns):
                token = self.right[i][j - 1] if j else self.enter(i)
                if token is not None:
                    step, value = token
                    above = self.down[i - 1][j] if i else (step, 0)
                    assert above[0] == step
                    new_right[i][j] = token
                    new_down[i][j] = (step, above[1] + value * self.plane[i][j])
        self.right, self.down = new_right, new_down
        for j, token in enumerate(new_down[-1]):
            if token is not None:
                self.machine.add_to_output(self.fold, token[0], j, token[1])
                self.remaining -= 1
        self.time += 1


class OutputStationary:
    """Inputs stream in from the left, weights from the top; each element keeps one sum."""

    def __init__(self, rows, columns, inputs, weights):
        self.rows, self.columns, self.inputs, self.weights = rows, columns, inputs, weights
        self.steps = len(weights)
        self.product = np.zeros((len(inputs), weights.shape[1]), int)
        self.folds = blocks(*self.product.shape, rows, columns)
        self.left_reads = self.top_reads = self.accesses = 0

    def read_left(self, fold, step, row):
        if row >= fold.height:
            return 0
        self.left_reads += 1
        return self.inputs[fold.top + row, step]

    def read_top(self, fold, step, column):
        if column >= fold.width:
            return 0
        self.top_reads += 1
        return self.weights[step, fold.left + column]

    def write(self, fold, row, column, value):
        if row < fold.height and column < fold.width:
            self.accesses += 1
            self.product[fold.top + row, fold.left + column] = value

    def run(self, convention, interval):
        if convention == "pipelined":
            return self.run_pipelined(interval)
        # All sums of a fold move into a chain of registers at once, and leave it at the bottom, a row per cycle; to
        # SCALE-Sim they leave from where they are, in no time.
        cycles, chain = 0, Chain(self, None, [])
        for fold in self.folds:
            wave = SumWave(self, fold)
            while not wave.finished:
                wave.cycle()
                chain.shift()
                cycles += 1
            assert chain.empty
            chain = Chain(self, fold, wave.sums)
            while convention in ("scale_sim", "huffllm") and not chain.empty:
                chain.shift()
                cycles += convention == "huffllm"
        while not chain.empty:
            chain.shift()
            cycles += 1
        return cycles

    def run_pipelined(self, interval):
        """Each element has a register for its finished sum, from which the sum falls by registers beside the elements;
        row i waits i cycles, so that a column's sums, which are finished one after the other, do not meet."""
        entering_left, entering_top = {}, {}
        for number, fold in enumerate(self.folds):
            start = number * interval
            for step in range(self.steps):
                for row in range(self.rows):
                    put(entering_left, (start + step + row, row), (number, step, self.read_left(fold, step, row)))
                for column in range(self.columns):
                    value = (number, step, self.read_top(fold, step, column))
                    put(entering_top, (start + step + column, column), value)
        sums, done = {}, {}
        right, down, out = (grid(self.rows, self.columns) for _ in range(3))
        cycle, remaining = 0, len(self.folds) * self.rows * self.columns
        while remaining:
            new_right, new_down, new_out = (grid(self.rows, self.columns) for _ in range(3))
            for i in range(self.rows):
                for j in range(self.columns):
                    falling = out[i - 1][j] if i else None
                    if (i, j) in done and cycle == done[i, j][0] + 1 + i:
                        if falling is not None:
                            raise CollisionError((i, j))
                        _, number, value = done.pop((i, j))
                        falling = (number, i, value)
                    new_out[i][j] = falling
                    token = right[i][j - 1] if j else entering_left.get((cycle, i))
                    other = down[i - 1][j] if i else entering_top.get((cycle, j))
                    assert (token is None) == (other is None)
                    if token is None:
                        continue
                    assert token[:2] == other[:2]
                    number, step = token[:2]
                    new_right[i][j], new_down[i][j] = token, other
                    sums[number, i, j] = sums.get((number, i, j), 0) + token[2] * other[2]
                    if step == self.steps - 1:
                        put(done, (i, j), (cycle, number, sums[number, i, j]))
            right, down, out = new_right, new_down, new_out
            for j, token in enumerate(out[-1]):
                if token is not None:
                    self.write(self.folds[token[0]], token[1], j, token[2])
                    remaining -= 1
            cycle += 1
        return cycle


class SumWave:
    """One fold's operands through the array, each element adding to its own sum."""

    def __init__(self, machine, fold):
        self.machine, self.fold = machine, fold
        self.sums = [[0] * machine.columns for _ in range(machine.rows)]
        self.right, self.down = grid(machine.rows, machine.columns), grid(machine.rows, machine.columns)
        self.time, self.finished = 0, False

    def cycle(self):
        machine = self.machine
        new_right, new_down = grid(machine.rows, machine.columns), grid(machine.rows, machine.columns)
        for i in range(machine.rows):
            for j in range(machine.columns):
                token = self.right[i][j - 1] if j else self.enter(i, machine.read_left)
                other = self.down[i - 1][j] if i else self.enter(j, machine.read_top)
                if token is not None:
                    assert token[0] == other[0]
                    self.sums[i][j] += token[1] * other[1]
                new_right[i][j], new_down[i][j] = token, other
        self.right, self.down = new_right, new_down
        last = new_right[-1][-1]
        self.finished = last is not None and last[0] == machine.steps - 1
        self.time += 1

    def enter(self, place, read):
        step = self.time - place
        return (step, read(self.fold, step, place)) if 0 <= step < self.machine.steps else None


class Chain:
    """Finished sums on their way out, the bottom row first."""

    def __init__(self, machine, fold, sums):
        self.machine, self.fold = machine, fold
        self.left = [(row, values) for row, values in enumerate(sums)]

    @property
    def empty(self):
        return not self.left

    def shift(self):
        if self.left:
            row, values = self.left.pop()
            for column, value in enumerate(values):
                self.machine.write(self.fold, row, column, value)
