"""A systolic array in which both matrices stream in and each element keeps one sum, register by register."""

import numpy as np
from systolic_registers import CollisionError, blocks, grid, put


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
