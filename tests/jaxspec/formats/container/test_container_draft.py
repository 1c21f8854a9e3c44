import ml_dtypes
import numpy as np
import pytest
from container_samples import (
    ByMagnitude,
    coding_everything,
    directory_of,
    largest_of_rows,
    pack_to,
    tensor,
    weights,
    write_checkpoint,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.container import Container, unpack

EXACT = ("cassandra1", "cassandra1-coded", "cassandra1-midpoint")

#: Schemes whose blocks share exponents.
BLOCKS = ("cassandra2", "mxint8")

SHAPE = (20, 61)

#: 0.6 of 61 columns.
KEPT = 37


def all_kinds_of_values(seed):
    """Weights with NaN payloads, infinities, signed zeros and subnormal values among them."""
    patterns = weights(SHAPE, seed=seed)
    patterns[::3, ::7] = np.array([0x7FC1, 0xFF81, 0x7F80, 0xFF80, 0x8000, 0x0000, 0x0001, 0x807F, 0x7FFF], np.uint16)
    return patterns


def checkpoint(folder, matrix, *, dtype="BF16"):
    tensors = [
        tensor("embed", "BF16", weights(SHAPE, seed=1)),
        tensor("matrix", dtype, matrix),
        tensor("norm", "BF16", weights((61,), seed=2)),
    ]
    return write_checkpoint(folder / "model.safetensors", tensors)


def read(path, part):
    with Container(path) as container:
        return {name: container.read(name, part).reshape(t.form.shape) for name, t in container.tensors.items()}


def truncated(patterns, kept_per_row, cut_bits, *, scheme_name="cassandra1", exponent=0x7F80):
    """What a draft of exact values computes with: the largest of each row, their low bits zero, or 1000... of normal values."""
    mask = largest_of_rows(patterns, patterns.shape, kept_per_row)
    normal = (patterns & exponent != 0) & (patterns & exponent != exponent)
    fill = np.where(normal & (scheme_name == "cassandra1-midpoint"), (1 << cut_bits) >> 1, 0).astype(np.uint16)
    return np.where(mask, patterns & np.uint16(0xFFFF << cut_bits & 0xFFFF) | fill, np.uint16(0))


#: Of the exponent in a pattern of each type.
EXPONENT = {"BF16": 0x7F80, "F16": 0x7C00}


def with_shared_exponents(patterns, kept_per_row, cut_bits):
    """Target and draft of Cassandra-2, value by value: of 32 neighbours the largest exponent, 8 bits of mantissa."""
    target, draft = patterns.copy(), np.zeros_like(patterns)
    mask = largest_of_rows(patterns, patterns.shape, kept_per_row)
    for row in range(patterns.shape[0]):
        for first in range(0, patterns.shape[1], 32):
            block = range(first, min(first + 32, patterns.shape[1]))
            fields = [int(pattern) >> 7 & 0xFF for pattern in patterns[row, block]]
            # Subnormal values have the exponent 1 and no leading one.
            unit = 2.0 ** (max(max(fields), 1) - 127 - 7)
            for column, field in zip(block, fields, strict=True):
                mantissa = (int(patterns[row, column]) & 0x7F) | (0x80 if field else 0)
                mantissa >>= max(max(fields), 1) - max(field, 1)
                sign = -1.0 if patterns[row, column] >> 15 else 1.0
                for out, low in ((target, 0), (draft, cut_bits)):
                    kept = out is target or mask[row, column]
                    value = np.float64(sign * ((mantissa >> low << low) * unit) if kept else 0.0)
                    out[row, column] = value.astype(ml_dtypes.bfloat16).view(np.uint16)
    return target, draft


@pytest.mark.parametrize("scheme_name", EXACT)
def test_a_draft_by_hand(everything_coded, scheme_name, tmp_path):
    # 0x3F80 is 1, 0xBFC3 about -1.5, 0x4049 about 3.1, 0x0001 the smallest. Two of four are kept, four bits cut.
    matrix = np.array([[0x3F80, 0xBFC3, 0x4049, 0x0001]], np.uint16)
    pack_to(tmp_path / "a.jspk", checkpoint(tmp_path, matrix), scheme_name, ByMagnitude(0.5, 4))
    fill = 8 if scheme_name == "cassandra1-midpoint" else 0
    assert read(tmp_path / "a.jspk", "draft")["matrix"].tolist() == [[0, 0xBFC0 | fill, 0x4040 | fill, 0]]
    assert read(tmp_path / "a.jspk", "target")["matrix"].tolist() == matrix.tolist()


@pytest.mark.parametrize(("cut_bits", "dtype"), [(4, "BF16"), (0, "BF16"), (7, "BF16"), (4, "F16"), (9, "F16")])
@pytest.mark.parametrize("scheme_name", EXACT)
def test_the_draft_is_the_mask_and_the_high_bits(scheme_name, cut_bits, dtype, tmp_path):
    matrix = all_kinds_of_values(3)
    source = checkpoint(tmp_path, matrix, dtype=dtype)
    pack_to(tmp_path / "a.jspk", source, scheme_name, ByMagnitude(0.6, cut_bits))
    draft, target = read(tmp_path / "a.jspk", "draft"), read(tmp_path / "a.jspk", "target")
    options = {"scheme_name": scheme_name, "exponent": EXPONENT[dtype]}
    np.testing.assert_array_equal(draft["matrix"], truncated(matrix, KEPT, cut_bits, **options))
    np.testing.assert_array_equal(target["matrix"], matrix)
    for name in ("embed", "norm"):
        np.testing.assert_array_equal(draft[name], target[name])
    # No bit that is stored of the draft is missing in the target, and what it lacks are low bits or whole values.
    assert not np.any(draft["matrix"] >> cut_bits & ~(target["matrix"] >> cut_bits))
    lacking = draft["matrix"] ^ target["matrix"]
    assert np.all((lacking < 1 << cut_bits) | (draft["matrix"] == 0))


@pytest.mark.parametrize(("dtype", "cut_bits"), [("F16", 7), ("F16", 10), ("BF16", 3)])
@pytest.mark.parametrize("scheme_name", EXACT)
def test_a_draft_of_every_pattern(everything_coded, scheme_name, dtype, cut_bits, tmp_path):
    matrix = np.random.default_rng(8).permutation(1 << 16).astype(np.uint16).reshape(256, 256)
    pack_to(tmp_path / "a.jspk", checkpoint(tmp_path, matrix, dtype=dtype), scheme_name, ByMagnitude(0.6, cut_bits))
    with Container(tmp_path / "a.jspk") as container:
        assert container.tensors["matrix"].codec == scheme_name
    np.testing.assert_array_equal(read(tmp_path / "a.jspk", "target")["matrix"], matrix)
    draft = read(tmp_path / "a.jspk", "draft")["matrix"]
    options = {"scheme_name": scheme_name, "exponent": EXPONENT[dtype]}
    np.testing.assert_array_equal(draft, truncated(matrix, round(0.6 * 256), cut_bits, **options))


@settings(max_examples=12)
@given(
    kept=st.sampled_from([0.0, 0.6, 1.0]),
    cut_bits=st.sampled_from([0, 4, 7]),
    seed=st.integers(0, 2**32 - 1),
    noise=st.booleans(),
)
def test_draft_and_verification_data_of_any_matrix(tmp_path_factory, kept, cut_bits, seed, noise):
    matrix = weights(SHAPE, seed=seed)
    if noise:
        matrix = np.random.default_rng(seed).integers(1 << 16, size=SHAPE).astype(np.uint16)
    folder = tmp_path_factory.mktemp("any")
    with coding_everything():
        pack_to(folder / "a.jspk", checkpoint(folder, matrix), "cassandra1-coded", ByMagnitude(kept, cut_bits))
    np.testing.assert_array_equal(read(folder / "a.jspk", "target")["matrix"], matrix)
    expected = truncated(matrix, round(kept * SHAPE[1]), cut_bits)
    np.testing.assert_array_equal(read(folder / "a.jspk", "draft")["matrix"], expected)


@pytest.mark.scheme_matrix(2)
@pytest.mark.parametrize("cut_bits", [0, 3, 8])
def test_shared_exponents_against_plain_python(cut_bits, tmp_path):
    matrix = weights(SHAPE, seed=5)
    matrix[4] = 0  # a block of nothing but zeros,
    matrix[5] = np.arange(61) | 0x8000  # one of nothing but subnormal values,
    matrix[6, :40] = 0x0001  # and one of zeros and one normal value.
    matrix[6, 50] = 0x0080
    source = checkpoint(tmp_path, matrix)
    pack_to(tmp_path / "a.jspk", source, "cassandra2", ByMagnitude(0.6, cut_bits))
    target, draft = with_shared_exponents(matrix, KEPT, cut_bits)
    found, drafted = read(tmp_path / "a.jspk", "target"), read(tmp_path / "a.jspk", "draft")
    np.testing.assert_array_equal(found["matrix"], target)
    np.testing.assert_array_equal(drafted["matrix"], draft)
    # Embeddings and vectors are nobody's matrix.
    for name, kind in (("embed", 1), ("norm", 2)):
        np.testing.assert_array_equal(found[name], weights(SHAPE if kind == 1 else (61,), seed=kind))
        np.testing.assert_array_equal(drafted[name], found[name])
    values = matrix.view(ml_dtypes.bfloat16).astype(np.float64)
    error = np.abs(found["matrix"].view(ml_dtypes.bfloat16).astype(np.float64) - values)
    assert error.max() > 0
    # Below a unit of the block's largest value, which is at least the row's.
    assert np.all(error <= 2.0**-7 * np.abs(values).max(axis=1, keepdims=True))


def test_what_is_not_lossless_says_so_and_unpacks_to_its_target(tmp_path):
    source = checkpoint(tmp_path, weights(SHAPE, seed=6))
    pack_to(tmp_path / "a.jspk", source, "cassandra2")
    with Container(tmp_path / "a.jspk") as container:
        assert not container.lossless
        unpack(container, tmp_path / "out.safetensors")
    assert (tmp_path / "out.safetensors").stat().st_size == source.stat().st_size
    # Packed once more without loss it is the same network.
    pack_to(tmp_path / "b.jspk", tmp_path / "out.safetensors", "raw")
    once, again = read(tmp_path / "a.jspk", "target"), read(tmp_path / "b.jspk", "target")
    for name, patterns in once.items():
        np.testing.assert_array_equal(again[name], patterns)


@pytest.mark.parametrize("scheme_name", [*EXACT, *BLOCKS, "any-precision", "elastic"])
def test_a_draft_reads_its_own_bytes_and_no_others(scheme_name, tmp_path):
    pack_to(tmp_path / "a.jspk", checkpoint(tmp_path, weights(SHAPE, seed=9)), scheme_name)
    directory, offset = directory_of((tmp_path / "a.jspk").read_bytes())
    # Prelude and directory, which has the weights' header and the tensors that are too short for sections.
    opening = 64 + (tmp_path / "a.jspk").stat().st_size - offset
    of_target = {"low", "pruned", "pruned_exponent", "pruned_rest"}
    lengths = {"draft": 0, "target": 0}
    for entry in directory["tensors"]:
        for role, (_, length, _) in entry["chunks"][0].items() if entry["chunks"] else ():
            lengths["target" if role in of_target else "draft"] += length
    with Container(tmp_path / "a.jspk") as container:
        assert container.has_draft
        assert container.bytes_read == opening
        for name in container.tensors:
            container.read(name, "draft")
        assert container.bytes_read == opening + lengths["draft"]
        for part, length in lengths.items():
            assert sum(section.length for section in container.sections(part)) == length > 0
    with Container(tmp_path / "a.jspk") as container:
        for name in container.tensors:
            container.read(name)
        assert container.bytes_read == opening + lengths["draft"] + lengths["target"]


def test_draft_sections_have_the_promised_sizes(tmp_path):
    """Bits per kept value: 1 sign, 3 high, 4 low; a bitmap of 1 per value; 16 per pruned value."""
    matrix = weights((64, 96), seed=10)
    pack_to(tmp_path / "a.jspk", checkpoint(tmp_path, matrix), "cassandra1", ByMagnitude(0.5, 4))
    with Container(tmp_path / "a.jspk") as container:
        bits = {role: 8 * where.length for role, where in container.tensors["matrix"].chunks[0].items()}
    kept = 64 * 48
    exponents = matrix[largest_of_rows(matrix, matrix.shape, 48)] >> 7 & 0xFF
    counts = np.sort(np.bincount(exponents))[::-1]
    unary = int(np.sum(counts * np.arange(1, counts.size + 1)))
    assert bits.pop("exponent") == -(-unary // 8) * 8
    assert bits == {"bitmap": 64 * 96, "sign": kept, "high": 3 * kept, "low": 4 * kept, "pruned": 16 * kept}


def test_a_draft_survives_damage_of_what_it_does_not_read(tmp_path):
    pack_to(tmp_path / "a.jspk", checkpoint(tmp_path, weights(SHAPE, seed=11)), "cassandra1")
    before = read(tmp_path / "a.jspk", "draft")
    content = bytearray((tmp_path / "a.jspk").read_bytes())
    with Container(tmp_path / "a.jspk") as container:
        for section in container.sections("target"):
            content[section.offset : section.offset + section.length] = bytes(section.length)
    (tmp_path / "a.jspk").write_bytes(content)
    after = read(tmp_path / "a.jspk", "draft")
    for name, patterns in before.items():
        np.testing.assert_array_equal(after[name], patterns)
