"""Whose kernels price a compression that rounds activations, and what its entry says of that."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwmodels import DraftCost
from jaxspec.compress.fitted import fitted_footprint
from jaxspec.models.config import DecoderConfig
from jaxspec.settings.compressions import COMPRESSIONS
from jaxspec.studies import CompareConfig
from jaxspec.studies.compare.result import Quality
from jaxspec.studies.compare.run import contest_on, price_chains, with_own_kernels
from jaxspec.studies.compare.stages import CompareStages
from jaxspec.studies.measured.pricing import resolve_pricing

NETWORK = DecoderConfig(
    vocab_size=11, hidden_size=12, intermediate_size=20, num_layers=1, num_heads=3, num_kv_heads=3, head_dim=4
)
W8A8 = COMPRESSIONS["smoothquant-w8a8"]


pytestmark = pytest.mark.study


def priced(config, device, facts):
    pricing = resolve_pricing(config, device, NETWORK)
    return pricing, *with_own_kernels(config, device, pricing, NETWORK, facts)


def contested(config, device, *compressions):
    """Contestants of a comparison of compressions alone, without quality."""
    stages: Any = SimpleNamespace(
        config=config,
        drafts=[],
        compressions=compressions,
        work=SimpleNamespace(
            pricings={device: resolve_pricing(config, device, NETWORK)}, setup=SimpleNamespace(config=NETWORK)
        ),
        footprint_of_compression=CompareStages.footprint_of_compression,
        quality_of_compression=lambda name: Quality(),
        quality_of_scheme=lambda name: Quality(),
    )
    return contest_on(stages, device).contestants


def test_a_device_with_measured_kernels_prices_the_step_with_them():
    config = CompareConfig(device=("a100-sxm-80gb",), batch=16)
    plain, own, said = priced(config, "a100-sxm-80gb", W8A8)
    assert said == "priced with measured kernels of 8-bit weights and activations (sq)"
    assert own.device.matrix_unit != plain.device.matrix_unit
    found = contested(config, "a100-sxm-80gb", "smoothquant-w8", "smoothquant-w8a8")
    step_s = {name: each.cycle_s.known for name, each in found.items()}
    asked = resolve_pricing(dataclasses.replace(config, weight_format="sq"), "a100-sxm-80gb", NETWORK)
    prices = price_chains(asked.replace(footprint=fitted_footprint("smoothquant-w8a8"), draft=DraftCost()), 1)
    assert step_s["smoothquant-w8a8"] == prices.cycle_s[0]
    assert not np.isclose(step_s["smoothquant-w8a8"], step_s["smoothquant-w8"], rtol=1e-3)
    # The baseline multiplies in 16 bits on both.
    assert step_s["autoregressive"] == pytest.approx(prices.ar_bf16_s, rel=1e-6)
    assert found["smoothquant-w8a8"].statement == f"{W8A8.title}; {said}"
    assert [each.activation_bits.known for each in found.values()] == [16, 16, 8]


def test_keys_and_values_of_4_bits_are_priced_with_their_scales():
    config = CompareConfig(device=("rtx-4090",), context=32768, batch=16)
    plain = resolve_pricing(config, "rtx-4090", NETWORK)
    heads = float(plain.architecture.head_dim)
    stages: Any = SimpleNamespace(
        config=config,
        drafts=[],
        compressions=("rotated-w4a4", "rotated-w4a4kv4"),
        work=SimpleNamespace(pricings={"rtx-4090": plain}, setup=SimpleNamespace(config=NETWORK)),
        footprint_of_compression=CompareStages.footprint_of_compression,
        quality_of_compression=lambda name: Quality(),
        quality_of_scheme=lambda name: Quality(),
    )
    contest = contest_on(stages, "rtx-4090")
    bits = {name: each.bits_per_kv_verify for name, each in contest.contestants.items()}
    assert [each.known for each in bits.values()] == [16, 16, 4 + 32 / heads]
    assert [each.status for each in bits.values()] == ["input", "predicted", "predicted"]
    held = {name: each.held_bytes.known for name, each in contest.contestants.items()}
    cache = 16 * 32768 * plain.architecture.num_layers * 2 * plain.architecture.num_kv_heads * heads / 8
    saved = held["rotated-w4a4"] - held["rotated-w4a4kv4"]
    assert saved == pytest.approx(float((16 - 4 - 32 / heads) * cache), rel=0.02)
    step_s = {name: each.cycle_s.known for name, each in contest.contestants.items()}
    assert step_s["rotated-w4a4kv4"] < 0.5 * step_s["rotated-w4a4"]
    # Shorter heads have more scales.
    assert float(fitted_footprint("rotated-w4a4kv4", 64.0).target_kv_bits) == 4.5
