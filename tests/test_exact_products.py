"""No product of float32 numbers is left to the device's own idea of a product."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.numerics.compensated_sums import EXACT, exact_matmul

ROOT = Path(__file__).parents[1]

#: Functions of `jax.numpy` and `jax.lax` that multiply matrices.
PRODUCTS = {"dot", "dot_general", "einsum", "inner", "matmul", "tensordot", "vdot"}

#: Files that import JAX and multiply arrays of NumPy.
IN_NUMPY = {
    "hwmodels/analysis/calibration/least_squares.py",
    "hwmodels/speculation/acceptance.py",
    "jaxspec/formats/container/cassandra_sections.py",
    "jaxspec/host/fits.py",
    "jaxspec/speculate/acceptance.py",
    "jaxspec/studies/measured/comparison.py",
    "jaxspec/testing/units.py",
    "jaxspec/tuning/acceptance_law.py",
}


def nodes(path):
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def products_of(path):
    """Line of each call of one of JAX's products in a file, with what it is given by name."""
    for node in nodes(path):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in PRODUCTS and ast.unparse(node.func.value) in ("jnp", "jax.numpy", "lax", "jax.lax"):
            yield node.lineno, {word.arg: ast.unparse(word.value) for word in node.keywords}


@pytest.mark.parametrize("package", ["jaxspec", "hwmodels"])
def test_every_product_says_how_exact_it_is(package):
    found = [
        (f"{path.relative_to(ROOT)}:{line}", given)
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, given in products_of(path)
    ]
    # Products of 16-bit operands are exact in float32, and say that their sums are.
    silent = [where for where, given in found if not {"precision", "preferred_element_type"} & given.keys()]
    assert found or package == "hwmodels"
    assert not silent, "say precision=EXACT, or use exact_matmul"


def test_the_operator_multiplies_arrays_of_numpy_alone():
    found = {
        str(path.relative_to(ROOT))
        for package in ("jaxspec", "hwmodels")
        for path in (ROOT / package).rglob("*.py")
        if any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) for node in nodes(path))
        and "import jax" in path.read_text(encoding="utf-8")
    }
    assert found == IN_NUMPY, "use exact_matmul for arrays of JAX"


def test_the_compiled_product_is_asked_for_in_full():
    a, b = jnp.ones((3, 4)), jnp.ones((4, 2))
    assert "HIGHEST" in str(jax.make_jaxpr(exact_matmul)(a, b))
    assert EXACT is jax.lax.Precision.HIGHEST
    np.testing.assert_array_equal(exact_matmul(a, b), np.full((3, 2), 4.0))
