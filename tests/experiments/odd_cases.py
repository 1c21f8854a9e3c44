"""Cases for workers that hang and die; apart from the tests, so that a new process has little to import."""

import os
import time

from experiments.fuzz_container.workers import Result


def setup_of_odd_cases():
    """Case 3 hangs, case 5 kills its process, case 7 raises, case 9 fails."""

    def case(number):
        if number == 3:
            time.sleep(60)
        if number == 5:
            os._exit(7)
        if number == 7:
            raise KeyError(number)
        return Result(number, "odd", "wrong" if number == 9 else "refused", "", 0.0, 0)

    return case


def setup_that_fails():
    """Raises before the first case."""
    raise OSError("no room")
