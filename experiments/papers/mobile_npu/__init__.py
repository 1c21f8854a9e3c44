"""Test-time scaling on a mobile NPU: what of the paper its hardware decides."""
