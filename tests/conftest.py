"""What every test runs under."""

import collections
import ctypes
import functools
import gc
import itertools
import os
import pathlib
import signal
import sys
from importlib.metadata import version

# Compiling is what the tests spend their time on, and what they run is small: compile fast, also in the processes that
# tests start. Read when the first program is compiled. XLA ends the process at a flag that it does not know, so those that
# may go with a new version, of which each nearly halves the time, are given to the versions that are known to have them: the
# old emitters, and one LLVM module for each program, not one for each of its kernels.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10.")
    + " --xla_cpu_parallel_codegen_split_count=1" * version("jaxlib").startswith(("0.10.", "0.12."))
)

# Nothing compiled is kept from run to run, so that no program needs a key to be found by.
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"

import array_hints
import jax
import jaxtyping
import pytest
from check_kinds import NUM_PARTS, PAGES_OF_STUDIES, are_beyond, parts_of, seconds_of, unit_of
from hypothesis import settings
from longest_units import LEAST_S, LONGEST_S

# Shapes and types of arrays are checked against the annotations, in tests only.
jaxtyping.jaxtyped = array_hints.jaxtyped
jaxtyping.install_import_hook(["jaxspec", "hwmodels"], None)

# Neither types nor ranks are promoted in silence: the sources say both (`astype`, `[None]`, `hwmodels.numerics.scalars`).
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# JAX makes a context of MLIR for each program that it compiles, and registers all of MLIR's operations in it: a quarter of
# the time of a small program, and much memory. The programs of a module share one, which keeps their constants until the
# next. A version that makes its contexts elsewhere makes them as before.
_mlir = sys.modules.get("jax._src.interpreters.mlir")
_context_of_module = functools.cache(getattr(_mlir, "make_ir_context", lambda: None))
if _mlir is not None:
    _mlir.make_ir_context = _context_of_module

# Children of a job in the background would ignore Ctrl-C, as they should; those of tests are sent it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine and in every run; compilation makes the first example slow, so no deadline.
settings.register_profile("jaxspec", deadline=None, derandomize=True)
settings.load_profile("jaxspec")


# Traces and programs live long and are many: looking through all of them again and again for garbage takes a twelfth of the
# time. What a module leaves is young, and is looked through once, after it; that of ten modules once more, and what is left
# then stays to the end. What compiling has freed the C library keeps unless asked (10 GB of a worker that needs 1).
# Programs are kept too, in tens of pieces of memory each, and Linux ends a process that wants more than 65,530 of them:
# before that they are dropped.
gc.disable()
_modules = itertools.count(1)
_MODULES_BETWEEN = 10
_give_back = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)
_PIECES = pathlib.Path("/proc/self/maps")
#: Two thirds of what Linux allows; no module needs the rest.
_MOST_PIECES = 44_000


def _num_pieces():
    """Pieces of memory that this process has; 0 where the system does not say."""
    return _PIECES.read_bytes().count(b"\n") if _PIECES.exists() else 0


@pytest.fixture(autouse=True, scope="module")
def _garbage():
    yield
    _context_of_module.cache_clear()
    if _num_pieces() > _MOST_PIECES:
        jax.clear_caches()
    if next(_modules) % _MODULES_BETWEEN:
        gc.collect(1)
    else:
        gc.collect()
        gc.freeze()
        _give_back(0)


@pytest.fixture(autouse=True)
def _wrong_arrays(request):
    """Tests that pass wrong arrays on purpose are to read the library's own line, not the annotation's."""
    if request.node.get_closest_marker("wrong_arrays") is None:
        yield
        return
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pytest_collection_finish():
    """What is imported and collected stays to the end: no search for garbage looks through it."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser):
    parser.addoption(
        "--eighth", type=int, choices=range(NUM_PARTS), help="of the checks beyond the fast suite run this eighth alone"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Marks as slow what is beyond the fast suite, chooses an eighth of it, and sorts.

    The longest units go first, so that none of them is left to one of the workers at the end.
    """
    for item in items:
        if item.nodeid.startswith(PAGES_OF_STUDIES):
            item.add_marker("study")
    beyond = [item for item, is_beyond in zip(items, list(are_beyond(items))) if is_beyond]
    for item in beyond:
        item.add_marker("slow")
    if (eighth := config.getoption("eighth")) is not None:
        parts = parts_of(seconds_of(beyond))
        left_out = {item for item in beyond if parts[unit_of(item)] != eighth}
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: -LONGEST_S.get(unit_of(item), 0))


def pytest_terminal_summary(terminalreporter):
    """Prints units whose seconds `longest_units` does not have, or has wrong by half, as they are to be written there."""
    seconds = collections.Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport):
            seconds[unit_of(report)] += report.duration
    for unit, measured in seconds.most_common():
        if measured >= LEAST_S and not 0.5 < LONGEST_S.get(unit, 0) / measured < 2:
            terminalreporter.write_line(f'    "{unit}": {measured:.0f},')
