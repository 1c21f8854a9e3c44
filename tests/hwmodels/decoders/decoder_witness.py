"""Decoders and a consumer cycle by cycle, in plain Python and fractions: an independent witness of how many are needed.

Each unit parses so many bits of its own stream of codewords per cycle into a queue, and puts out from it at most so many
symbols per cycle. A consumer takes a fixed number of symbols per cycle on average, and starts once the buffer holds enough to
even out what lies between means and cycles.
"""

import math
from fractions import Fraction


class Unit:
    """One decoder; a period of codeword lengths is repeated, each time in another order."""

    def __init__(self, draw, lengths, bits_per_cycle, symbols_per_cycle):
        self.draw, self.period = draw, list(lengths)
        self.bits_per_cycle, self.symbols_per_cycle = bits_per_cycle, symbols_per_cycle
        self.left, self.bits, self.slots, self.queue = [], Fraction(0), Fraction(0), 0

    def cycle(self):
        """Symbols put out in one cycle."""
        self.bits += self.bits_per_cycle
        while True:
            if not self.left:
                self.left = self.period[:]
                self.draw.shuffle(self.left)
            if self.left[-1] > self.bits:
                break
            self.bits -= self.left.pop()
            self.queue += 1
        if self.symbols_per_cycle is None:
            out, self.queue = self.queue, 0
            return out
        self.slots += self.symbols_per_cycle
        out = min(self.queue, math.floor(self.slots))
        self.queue -= out
        # A slot that found nothing to put out is lost; fractions of one add up.
        self.slots -= math.floor(self.slots)
        return out


def stalls(draw, units, lengths, bits_per_cycle, symbols_per_cycle, demand, *, deficit):
    """Whether a consumer of `demand` symbols per cycle ever waits.

    Args:
        deficit: by which the units are too slow, in symbols per cycle; <= 0 where they are not. Sets how long is looked at:
            as long as the buffer can last, or a few hundred cycles.
    """
    decoders = [Unit(draw, lengths, bits_per_cycle, symbols_per_cycle) for _ in range(units)]
    period, enough = len(lengths), units * (2 * len(lengths) + 4) + math.ceil(demand) + 2
    buffer = 0
    for _ in range(100_000):
        if buffer >= enough or not decoders:
            break
        buffer += sum(unit.cycle() for unit in decoders)
    spare = buffer + units * (2 * period + 4)
    spare += sum(unit.queue for unit in decoders) if symbols_per_cycle is None else 0
    cycles = 300 if deficit <= 0 else math.ceil((spare + 2) / deficit) + 2
    for t in range(cycles):
        buffer += sum(unit.cycle() for unit in decoders)
        take = math.floor((t + 1) * demand) - math.floor(t * demand)
        if take > buffer:
            return True
        buffer -= take
    return False
