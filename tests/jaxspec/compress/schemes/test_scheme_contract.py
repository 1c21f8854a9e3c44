"""What every storage scheme keeps to, whichever it is: the registry is the list, `jaxspec.testing.schemes` the contract."""

import jax
import numpy as np
import pytest

from jaxspec.compress.schemes import SCHEMES
from jaxspec.formats import bit_slices
from jaxspec.testing import schemes

RUNNING = [scheme for scheme in SCHEMES.values() if scheme.facts.runs]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=lambda scheme: scheme.name)
#: One of each class: the others differ in numbers alone, and share its code.
CLASSES = ("cassandra1", "cassandra1-midpoint", "cassandra1-head", "cassandra2", "elastic", "q4_0", "tile-q4_0-down8")
CLASSES += ("int4-channel", "mxfp4")
every_running_scheme = pytest.mark.parametrize("scheme", RUNNING, ids=lambda scheme: scheme.name)
#: Those in every run.
FIRST = pytest.mark.scheme_matrix("cassandra1", "cassandra2", "elastic", "q4_0")
every_class = pytest.mark.parametrize("scheme", [SCHEMES[name] for name in CLASSES], ids=CLASSES)

encoded = jax.jit(bit_slices.encode)


def has_the_upper_bits(draft, stored, knobs, place):
    """Whether the draft's integers, on the target's own scales, begin with the bits of the target's integers."""
    columns = stored.shape[-1]
    groups = encoded(np.pad(stored, ((0, 0), (0, 0), (0, -columns % 32))))
    scales = np.repeat(np.asarray(groups.scales, np.float32), 32, axis=-1)[..., :columns]
    integers = np.asarray(draft) / scales
    assert np.all(integers == np.round(integers))
    low_bits = 8 - np.asarray(knobs.values["slice_bits"], int)[:, place, None, None]
    target = np.asarray(groups.values, int)[..., :columns]
    return np.array_equal(integers.astype(int) >> low_bits, target >> low_bits)


def has_the_high_bits(draft, stored, knobs, place):
    """Whether the draft's patterns have no bit above the cut ones that the target's lack."""
    cut = np.asarray(knobs.values["weight_cut_bits"], np.uint16)[:, place, None, None]
    return not np.any(schemes.pattern(draft) >> cut & ~(schemes.pattern(stored) >> cut))


#: How a draft is a part of its target, where it is not by the patterns of bfloat16 values.
PART_OF = dict.fromkeys(("elastic", "bit-slices", "any-precision"), has_the_upper_bits)
PART_OF["cassandra1-midpoint"] = has_the_high_bits


@every_scheme
def test_it_is_the_one_of_its_name(scheme):
    assert SCHEMES[scheme.name] is scheme


@every_scheme
@pytest.mark.parametrize("check", schemes.PRICED_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract_of_what_is_priced(check, scheme):
    assert check(scheme) is None


@pytest.mark.parametrize("scheme", [s for s in SCHEMES.values() if not s.facts.runs], ids=lambda scheme: scheme.name)
def test_what_cannot_run_says_so(scheme):
    schemes.says_that_it_cannot_run(scheme)


@FIRST
@every_running_scheme
def test_the_hard_draft_is_a_part_of_the_target(scheme):
    schemes.drafts_a_part_of_the_target(scheme, PART_OF.get(scheme.name, schemes.is_part_of_pattern))


@FIRST
@every_class
def test_soft_tends_to_hard(scheme):
    schemes.softens(scheme)


@every_class
def test_kv_seen_for_the_first_time_is_compressed_like_known_kv(scheme):
    schemes.encodes_kv_as_known_kv(scheme)


@every_class
def test_default_knobs_trace_once(scheme):
    schemes.traces_once(scheme)
