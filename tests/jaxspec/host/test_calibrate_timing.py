"""How times are taken, and when a machine is believed."""

import pytest

from jaxspec.host.measuring import noise_of
from jaxspec.host.programs import cycle_timings
from jaxspec.models import DecoderConfig


def test_a_quiet_machine_is_believed_and_a_busy_one_is_not():
    assert noise_of([0.02] * 50, [1.0, 1.05, 1.1], 0.3).believed
    for spreads, probes in (([0.2] * 50, [1.0, 1.0]), ([0.02] * 40 + [0.5] * 10, [1.0, 1.0]), ([0.01] * 5, [1.0, 2.0])):
        found = noise_of(spreads, probes, None)
        assert not found.believed
        assert found.words.startswith("the machine was too busy to be believed: repeats of a program spread by")
        assert "--statistic least" in found.words
        assert "load" not in found.words
    assert "load per core at its beginning: 7.2" in noise_of([0.0], [1.0], 7.2).words


@pytest.mark.study
def test_decoding_gives_a_step_verifications_and_cycles():
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_layers": 2}
    config = DecoderConfig(num_heads=2, num_kv_heads=1, head_dim=8, **sizes)
    found = cycle_timings(config, "float32", draft_layers=1, lengths=(1, 4), batch=2, repeats=3)
    assert len(found) == 1 + 2 + 2
    assert all(one.median > 0 for one in found)
    # A cycle is a verification and what is drafted: four passes take longer than the verification alone.
    assert found[4].median > found[2].median
