"""How times are taken, and when a machine is believed."""

import jax
import jax.numpy as jnp
import pytest

from jaxspec.host import programs
from jaxspec.host.measuring import noise_of
from jaxspec.host.programs import Timed, cycle_timings, measure
from jaxspec.models import DecoderConfig, apart

pytestmark = pytest.mark.usefixtures("compile_quickly")


class Machine:
    """A clock that programs move: a first call compiles, each call has its start, and each turn takes its time."""

    def __init__(self):
        self.now, self.calls, self.compiled = 0.0, [], set()

    def program(self, name, turn_s, slow=()):
        def run(turns):
            if name not in self.compiled:
                self.compiled.add(name)
                self.now += 5.0
            self.calls.append(name)
            factor = 3.0 if self.calls.count(name) in slow else 1.0
            self.now += 1e-4 + factor * turns * turn_s
            return jnp.zeros(1)

        return Timed(run, per_turn=4)


def test_programs_take_turns_and_the_median_counts():
    machine = Machine()
    fast, slow = machine.program("fast", 1e-5), machine.program("slow", 4e-3)
    found = measure([fast, slow], repeats=5, call_s=0.02, clock=lambda: machine.now)
    assert found[0].first_s > 5 < found[1].first_s
    assert found[0].median == pytest.approx(1e-5 / 4, rel=0.05)
    assert found[1].median == pytest.approx(4e-3 / 4, rel=0.05)
    # The last ten calls are the repeats: one of each in turn.
    assert machine.calls[-10:] == ["fast", "slow"] * 5
    assert found[0].spread == pytest.approx(0.0, abs=1e-9)


def test_a_quiet_machine_is_believed_and_a_busy_one_is_not():
    assert noise_of([0.02] * 50, [1.0, 1.05, 1.1], 0.3).believed
    for spreads, probes in (([0.2] * 50, [1.0, 1.0]), ([0.02] * 40 + [0.5] * 10, [1.0, 1.0]), ([0.01] * 5, [1.0, 2.0])):
        found = noise_of(spreads, probes, None)
        assert not found.believed
        assert found.words.startswith("the machine was too busy to be believed: repeats of a program spread by")
        assert "--statistic least" in found.words
        assert "load" not in found.words
    assert "load per core at its beginning: 7.2" in noise_of([0.0], [1.0], 7.2).words


@pytest.mark.parametrize(("kind", "taken"), [("float32", True), ("bfloat16", False)])
def test_products_are_timed_as_decoding_takes_them(kind, taken, monkeypatch):
    multiplied = []

    def noted(x, matrix):
        multiplied.append((x.shape, matrix.shape))
        return x @ matrix

    monkeypatch.setattr(apart, "is_few_rows", lambda x, matrix: True)
    monkeypatch.setattr(apart, "dot_few_rows", noted)
    assert _finite(programs.product_program(3, 8, 5, 2, kind).run(1))
    assert multiplied == [((3, 8), (8, 5))] * 2 * taken


@pytest.mark.study
def test_decoding_gives_a_step_verifications_and_cycles():
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_layers": 2}
    config = DecoderConfig(num_heads=2, num_kv_heads=1, head_dim=8, **sizes)
    found = cycle_timings(config, "float32", draft_layers=1, lengths=(1, 4), batch=2, repeats=3)
    assert len(found) == 1 + 2 + 2
    assert all(one.median > 0 for one in found)
    # A cycle is a verification and what is drafted: four passes take longer than the verification alone.
    assert found[4].median > found[2].median


def _finite(found):
    return all(jnp.all(jnp.isfinite(leaf.astype(float))) for leaf in jax.tree.leaves(found))
