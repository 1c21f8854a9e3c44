"""How programs that decode are compiled on a GPU, shown on a CPU that passes for one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.host import programs
from jaxspec.models import decoding_programs
from jaxspec.models.decoding_programs import jit_decoding
from jaxspec.scaling import branches
from jaxspec.speculate import loop


@pytest.fixture(params=[True, False])
def gpu(request, monkeypatch):
    """Whether programs run on a GPU that multiplies bfloat16."""
    monkeypatch.setattr(decoding_programs, "gpu_has_unit", lambda: request.param)
    decoding_programs._options.cache_clear()
    yield request.param
    decoding_programs._options.cache_clear()


@pytest.fixture
def compiled(monkeypatch):
    """Compiler options of all programs that are compiled from now on; None: none were given."""
    found, real = [], jax.jit

    def recorded(function, **how):
        found.append(how.get("compiler_options"))
        return real(function, **how)

    monkeypatch.setattr(jax, "jit", recorded)
    return found


def doubled(x, times):
    return 2 * x * times


def test_only_a_gpu_is_told_something(gpu, compiled):
    program = jit_decoding(doubled, static_argnames="times")
    assert compiled == [None]  # nothing asked for a device
    np.testing.assert_array_equal(program(jnp.arange(3), times=3), [0, 6, 12])
    asked = [{name: value} for name, value in decoding_programs._OPTIONS.items()]  # whether XLA knows each
    assert compiled[1:] == [*asked, decoding_programs._OPTIONS] * gpu
    program(jnp.arange(4), times=3)
    assert len(compiled) == 1 + (len(asked) + 1) * gpu


@pytest.mark.network(1)
def test_decoding_branches_and_what_is_timed_are_compiled_so(gpu, compiled):
    for function in (loop.decoding_loop, branches.grow):
        assert function.__code__.co_filename == decoding_programs.__file__, "not made by jit_decoding"
    timed = programs.product_program(2, 16, 8, 3, "bfloat16")
    before = len(compiled)
    jax.block_until_ready(timed.run(2))
    assert (decoding_programs._OPTIONS in compiled[before:]) == gpu
