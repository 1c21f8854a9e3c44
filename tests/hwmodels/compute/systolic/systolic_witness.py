"""Systolic arrays simulated register by register, a cycle at a time: nothing here knows a formula for cycles or reads.

Every value sits in a register of an element and moves one element per cycle. Cycles are counted until the last value has
left, reads and writes where values cross the array's border. Zeros that pad a fold to the array are not read.
"""

from typing import NamedTuple

import numpy as np
from operand_stationary import OperandStationary
from output_stationary import OutputStationary


class Run(NamedTuple):
    product: np.ndarray
    cycles: int
    input_reads: int
    weight_reads: int
    output_accesses: int


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
