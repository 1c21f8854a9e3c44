import jax.numpy as jnp
import numpy as np
import pytest
from unit_checks import compiled

from hwmodels.compute.weight_layouts import LAYOUTS, CoalescedGroups, ScatteredGroups, TileGroups, Unconverted

#: Of each kind one, with numbers that are no multiples of each other.
EXAMPLES = {
    "coalesced": CoalescedGroups(register_bits=96.0, register_packets=7.0),
    "tile_groups": TileGroups(group_weights=12.0, group_packets=5.0),
    "scattered": ScatteredGroups(group_weights=12.0, group_packets=5.0, scatter_packets=31.0),
    "unconverted": Unconverted(),
}
packets = compiled(lambda layout, weights, bits, t: layout.packets(weights, weight_bits=bits, temperature=t))


def test_every_registered_kind_is_here():
    assert {kind: type(example) for kind, example in EXAMPLES.items()} == LAYOUTS


@pytest.mark.parametrize(("bits", "passes"), [(4.5, 30), (5.6, 60), (8.5, 60), (12.4, 90)])
def test_full_registers_by_hand(bits, passes):
    # 720 codes of 4 bits, 24 in a register; wider ones are two or three times as long.
    assert float(packets(EXAMPLES["coalesced"], 720, bits, 0.0)) == pytest.approx(passes * 7)


def test_groups_alone_by_hand():
    for bits in (4.5, 8.5):
        assert float(packets(EXAMPLES["tile_groups"], 720, bits, 0.0)) == pytest.approx(60 * 5)
        assert float(packets(EXAMPLES["scattered"], 720, bits, 0.0)) == pytest.approx(60 * (5 + 31))
        assert float(packets(EXAMPLES["unconverted"], 720, bits, 0.0)) == 0


@pytest.mark.parametrize("kind", EXAMPLES)
def test_what_every_layout_keeps_to(kind, check_gradient, x64):
    layout = EXAMPLES[kind]
    weights, bits, temperatures = (
        np.ravel(x) for x in np.meshgrid([0.0, 7.0, 100.0, 720.0], [3.1, 4.5, 8.5, 13.9], [0.0, 0.3, 1.0])
    )
    found = packets(layout, weights, bits, temperatures)
    assert np.all(np.isfinite(found) & (found >= 0))
    # In proportion to the weights, and never less for wider ones.
    np.testing.assert_allclose(packets(layout, 3 * weights, bits, temperatures), 3 * found, rtol=1e-6)
    assert np.all(packets(layout, weights, bits + 2.0, temperatures) >= found * (1 - 1e-6))

    def total(tree):
        layout, weights, bits = tree
        found = layout.packets(weights, weight_bits=bits, temperature=jnp.array([0.0, 0.2, 0.9]))
        # Copying takes nothing, whose differences alone would show nothing.
        return jnp.sum(found) + weights

    check_gradient(total, (layout, 313.0, 6.3))
