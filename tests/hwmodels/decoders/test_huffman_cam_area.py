import numpy as np

from hwmodels.decoders.huffman_cam import ReferenceCam, area_overhead, cam_bits, decoder_area

REFERENCE = ReferenceCam(area_m2=1199.3e-12, symbol_bits=5.0, max_code_bits=12.0)


def test_by_hand():
    # 32 entries of 12 bits.
    assert float(cam_bits(5, 12)) == 384
    np.testing.assert_allclose(decoder_area(REFERENCE, symbol_bits=5, max_code_bits=12), 1199.3e-12, rtol=1e-6)
    # 128 entries of 15 bits: 5 times the bits.
    np.testing.assert_allclose(decoder_area(REFERENCE, symbol_bits=7, max_code_bits=15), 5 * 1199.3e-12, rtol=1e-6)
    # If a fifth of it is register and shifter, four fifths grow.
    part_fixed = REFERENCE.replace(fixed_share=0.2)
    np.testing.assert_allclose(
        decoder_area(part_fixed, symbol_bits=7, max_code_bits=15), (0.2 + 0.8 * 5) * 1199.3e-12, rtol=1e-6
    )


def test_overhead_from_the_printed_areas():
    # 1199.3 / (128 * 484) per decoder; Huff-LLM prints 6.13 %, which is none of these.
    sizes = dict(rows=128, columns=128, pe_area_m2=484e-12)
    np.testing.assert_allclose(100 * area_overhead(1199.3e-12, **sizes), 1.936, atol=5e-4)
    np.testing.assert_allclose(100 * area_overhead(1199.3e-12, decoders_per_column=3, **sizes), 5.808, atol=5e-4)
    # A column more brings its own decoders, a row more shares them.
    fewer = area_overhead(1199.3e-12, rows=128, columns=77, pe_area_m2=484e-12)
    np.testing.assert_allclose(fewer, area_overhead(1199.3e-12, **sizes), rtol=1e-6)
    shorter = area_overhead(1199.3e-12, rows=64, columns=77, pe_area_m2=484e-12)
    np.testing.assert_allclose(shorter, 2 * fewer, rtol=1e-6)
