import jax
import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.runs.memory import told_in_one_line
from jaxspec.studies import TuneConfig


@pytest.mark.parametrize("allocate", [lambda: np.ones((1 << 30, 1 << 20)), lambda: jax.numpy.ones((1 << 30, 1 << 20))])
def test_memory_that_runs_out_is_one_line(allocate):
    with (
        pytest.raises(
            InputError, match=r"^memory ran out \(.*\); use --stream, .*--calibration-prompts.* or a device"
        ) as error,
        told_in_one_line(TuneConfig()),
    ):
        allocate()
    assert "\n" not in str(error.value)
