"""Matrices in MXFP4 against the table of the 16 element values, scale by scale, and what of such files is refused."""

import ml_dtypes
import numpy as np

from jaxspec.models.packed_tensors import unpacked_mxfp4

#: OCP MX v1.0, table of E2M1; codes 8 to 15 are the negative ones.
MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
VALUES = np.array(MAGNITUDES + [-x for x in MAGNITUDES])


def expected(blocks, scales):
    """One value at a time, in float64."""
    values = np.zeros((*scales.shape, 32))
    for *place, element in np.ndindex(values.shape):
        byte = blocks[(*place, element // 2)]
        code = byte >> 4 if element % 2 else byte & 15
        values[(*place, element)] = VALUES[code] * 2.0 ** (int(scales[tuple(place)]) - 127)
    return values.reshape(*scales.shape[:-1], -1)


def test_every_element_under_every_scale_is_exact():
    # All bytes under all scales but the NaN: the smallest products are subnormal in bfloat16, the largest ones infinite.
    scales = np.arange(255, dtype=np.uint8).reshape(-1, 1)
    blocks = np.broadcast_to(np.arange(256, dtype=np.uint8).reshape(1, 16, 16), (255, 16, 16))
    found = unpacked_mxfp4(blocks, np.broadcast_to(scales, (255, 16)))
    assert found.dtype == ml_dtypes.bfloat16
    values = expected(blocks, np.broadcast_to(scales, (255, 16)))
    finite = np.abs(values) < 2.0**128
    np.testing.assert_array_equal(found.astype(np.float64)[finite], values[finite])
    np.testing.assert_array_equal(np.signbit(found.astype(np.float64)), np.signbit(values))
    assert np.isinf(found.astype(np.float64)[~finite]).all()
    assert np.isnan(unpacked_mxfp4(blocks[:1], np.full((1, 16), 255, np.uint8)).astype(np.float32)).all()
