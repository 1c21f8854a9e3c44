import jax
import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.runs.memory import told_in_one_line
from jaxspec.studies import PredictConfig, TuneConfig


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


def test_only_what_the_command_has_is_advised():
    only = pytest.raises(InputError, match=r"\); use fewer --prompt-tokens or a device with more memory$")
    with only, told_in_one_line(PredictConfig()):
        raise MemoryError("none")
    with pytest.raises(InputError, match=r"use fewer --calibration-prompts"), told_in_one_line(TuneConfig(stream=True)):
        raise MemoryError


def test_other_errors_stay_what_they_are():
    with pytest.raises(jax.errors.JaxRuntimeError, match="broken"), told_in_one_line(TuneConfig()):
        raise jax.errors.JaxRuntimeError("INTERNAL: broken")
