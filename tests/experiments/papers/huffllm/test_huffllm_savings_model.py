"""Time and energy of a prefill on Huff-LLM's two chips: cases worked by hand, limits, and the printed sizes."""

import pytest

from experiments.papers.huffllm import savings_model
from experiments.papers.huffllm.savings_model import Case, Fitted, energy_saving, latency_saving, prefill_energy

SOME = Fitted(exposed_load_share=0.37, buffer_j_per_bit=3e-14, entry_j_per_weight=7e-12, decoder_j_per_cycle=9e-13)


@pytest.fixture
def toy(monkeypatch):
    """Two matrices of 256 x 384 and one of 130 x 128."""
    monkeypatch.setitem(savings_model.MODELS, "toy", savings_model.Matrices((256, 130), (384, 128), (2, 1)))
    yield "toy"
    savings_model.work.cache_clear()


def test_time_and_energy_by_hand(toy):
    # 5 tokens. Folds of 128 x 128: 2 x 3, and 2 x 1 for 130 rows; each takes 128 ns to load and so long to compute, as 5 < 128;
    # the first load, the last stream and its skew are not hidden: 128 + 5 * 128 + 5 + 254 and 128 + 128 + 5 + 254 ns.
    case = Case(toy, 5, 64.0, "systolic WS")
    dram = [(256 * 384 * bits + 5 * 640 * 16) / 8 / 64 for bits in (16, 11)]
    small = [(130 * 128 * bits + 5 * 258 * 16) / 8 / 64 for bits in (16, 11)]
    assert dram[1] > 1027
    assert small[0] > 515 > small[1] * 0.9
    times = [2 * (big + 0.37 * 768) + max(little, 515) + 0.37 * 256 for big, little in zip(dram, small, strict=True)]
    assert latency_saving(case, 11.0, SOME) == pytest.approx(100 * (1 - times[1] / times[0]))

    weights, inputs, sums = 2 * 256 * 384 + 130 * 128, (2 * 256 * 3 + 130) * 5, (2 * 384 * 3 + 128 * 3) * 5
    written = (2 * 256 + 130) * 5
    for bits, time in ((16, times[0]), (11, times[1])):
        costs = prefill_energy(case, float(bits), SOME)
        assert costs.dram == pytest.approx((weights * bits + (2 * 640 + 258) * 5 * 16) * 5e-12)
        buffer_bits = 2 * weights * bits + (inputs + written) * 16 + sums * 32
        assert costs.buffers == pytest.approx(buffer_bits * 3e-14)
        assert costs.entry == pytest.approx(weights * 7e-12)
        # 128 lanes at 1 GHz, and only where weights are compressed.
        assert costs.decoders == pytest.approx(128 * time * 9e-13 if bits < 16 else 0.0)
    totals = [sum(prefill_energy(case, bits, SOME)) for bits in (16.0, 11.0)]
    assert energy_saving(case, 11.0, SOME) == pytest.approx(100 * (1 - totals[1] / totals[0]))


def test_output_stationary_by_hand(toy):
    # One fold over 5 tokens, three over 384 columns, each 256 steps long; three drains of 128 ns.
    done = savings_model.work(Case(toy, 5, 1e6, "systolic OS"), 16.0)
    compute = 2 * (128 + 2 * 256 + 256 + 254) + 128 + 130 + 254
    assert done.busy_s == pytest.approx(compute * 1e-9)
    assert done.load_s == pytest.approx((2 * 3 + 1) * 128e-9)


def test_vector_array_by_hand(toy):
    done = savings_model.work(Case(toy, 5, 64.0, "simba WS"), 11.0)
    # All activations fit the global buffer, so that DRAM sees weights only; 128 lanes at 2 GHz take them in.
    weights = 2 * 256 * 384 + 130 * 128
    assert done.dram_bits == weights * 11
    assert done.busy_s == pytest.approx(weights * 11 / 8 / 64e9)
    assert done.load_s == pytest.approx(weights / 256e9)
    assert done.decoder_hz == 256e9
    # 2 MiB hold 92 x 10240 activations, but not 92 x 13824 (Llama 2-13B's feed-forward: gate, up, and down's input).
    spilled = savings_model.work(Case("Llama 2-13B", 92, 64.0, "simba WS"), 16.0)
    assert spilled.dram_bits - spilled.weights * 16 == 3 * 92 * 13824 * 16
    kept = savings_model.work(Case("OPT-2.7B", 92, 64.0, "simba WS"), 16.0)
    assert kept.dram_bits == kept.weights * 16
    with pytest.raises(ValueError, match="architectures systolic WS"):
        savings_model.work(Case("Llama 2-13B", 92, 64.0, "gpu"), 16.0)
