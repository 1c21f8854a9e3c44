"""Tensors that a packed draft has whole."""

from jaxspec.formats.container import TensorForm
from jaxspec.studies.pack.draft_split import MatrixSplit


def test_scales_of_an_unknown_networks_matrices_stay_whole():
    """Releases in FP8 may have them in bfloat16: a draft that prunes them has blocks of zeros."""
    kept = lambda name: MatrixSplit(0.5, 4, {}, {}).selection(TensorForm(name, "BF16", (8, 6), 96))
    found = kept("layers.0.up.weight")
    assert found is not None
    assert found.kept_per_row == 3
    assert kept("layers.0.up.weight_scale_inv") is None
