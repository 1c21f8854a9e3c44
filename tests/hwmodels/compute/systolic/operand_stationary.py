"""A systolic array in which one matrix stays, the other streams in and partial sums fall out, register by register."""

import numpy as np
from systolic_registers import blocks, grid, put


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
