"""Sums are right: XLA gets the option that this release of jaxlib needs, and a user's own stays."""

import os
import subprocess
import sys

import pytest

from hwmodels.xla_flags import OWN_SUMS, keep_own_sums

pytestmark = pytest.mark.device_matrix

#: 820 of 4096 rows came out wrong, by up to 3.5.
PROGRAM = """
import {package}, jax, numpy as np
rng = np.random.default_rng(0)
a, b, c, d = (rng.random(s).astype(np.float32) for s in ((10, 10), (4096, 10), (4096, 10), (10,)))
found = jax.jit(lambda a, b, c, d: (a[None] * b[:, None, :]).sum(-1) + c + d)(a, b, c, d)
print(np.abs(np.asarray(found) - (np.einsum("ij,nj->ni", a.astype(float), b) + c + d)).max())
"""


@pytest.mark.parametrize("package", ["hwmodels", "jaxspec.trees"])
def test_sums_of_thousands_of_rows_are_right(package):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    program = PROGRAM.replace("{package}", package)
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert float(said.stdout) < 1e-5


@pytest.mark.parametrize(
    ("flags", "release", "wanted"),
    [
        (None, "0.10.2", OWN_SUMS),
        ("--xla_cpu_max_isa=AVX2", "0.10.0", f"--xla_cpu_max_isa=AVX2 {OWN_SUMS}"),
        ("--xla_cpu_experimental_ynn_fusion_type=", "0.10.2", "--xla_cpu_experimental_ynn_fusion_type="),
        (None, "0.11.0", None),
        (OWN_SUMS, "0.10.2", OWN_SUMS),
    ],
)
def test_the_option_is_added_once_where_it_is_known(flags, release, wanted):
    environment = {} if flags is None else {"XLA_FLAGS": flags}
    keep_own_sums(environment, release)
    assert environment.get("XLA_FLAGS") == wanted
