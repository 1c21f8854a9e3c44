import jax
import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.runs.execute import out_of_memory_as_input_error
from jaxspec.studies import TuneConfig


@pytest.mark.parametrize("allocate", [lambda: np.ones((1 << 30, 1 << 20)), lambda: jax.numpy.ones((1 << 30, 1 << 20))])
def test_memory_that_runs_out_is_one_line(allocate):
    with (
        pytest.raises(
            InputError, match=r"^memory ran out \(.*\); use --stream, .*--calibration-prompts.* or a device"
        ) as error,
        out_of_memory_as_input_error(TuneConfig()),
    ):
        allocate()
    assert "\n" not in str(error.value)
