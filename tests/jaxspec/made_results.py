"""A made-up result of one device. No two numbers that the report shows are equal, so that a swapped one is noticed."""

import pytest

from jaxspec.studies.tune.result import TuneResult

KINDS = ("q", "k", "v", "o", "gate", "up", "down")
STATUS = {
    "speedup_vs_bf16_ar": "predicted",
    "speedup_vs_stored_ar": "predicted",
    "alpha_token": "measured",
    "alpha_fraction": "measured",
    "bits_per_weight": "measured",
    "bits_per_weight_verify": "measured",
    "bits_per_kv": "measured",
    "tokens_per_cycle_predicted": "predicted",
    "tokens_per_cycle_counted": "measured",
    "kl": "measured",
}
#: name -> speedup over bf16 and over stored AR, alpha_token, alpha_fraction, bits of draft, verification and KV, length,
#: tokens per cycle predicted, counted and its standard error, gap.
NUMBERS = {
    "default": (1.93, 1.69, 0.952, 0.851, 5.11, 13.91, 9.93, 5, 5.26, 5.21, 0.061, 0.82),
    "grid": (2.04, 1.75, 0.931, 0.796, 4.22, 13.52, 8.04, 4, 4.98, 4.95, 0.072, 0.42),
    "uniform": (2.09, 1.77, 0.935, 0.778, 4.13, 13.43, 7.55, 6, 5.67, 5.64, 0.083, 0.36),
    "tuned": (2.33, 1.96, 0.948, 0.814, 3.64, 13.34, 6.86, 7, 5.89, 5.84, 0.094, 0.53),
}


def configuration(name, layers):
    bf16, stored, token, fraction, draft, verify, kv, length, predicted, counted, error, gap = NUMBERS[name]
    prune = {kind: [round(0.1 + 0.07 * i + 0.03 * j, 6) for j in range(layers)] for i, kind in enumerate(KINDS)}
    cut = {kind: [float((i + j) % 8) for j in range(layers)] for i, kind in enumerate(KINDS)}
    return {
        "speedup_vs_bf16_ar": bf16,
        "speedup_vs_stored_ar": stored,
        "acceptance": {"alpha_token": token, "alpha_fraction": fraction, "conditional": [token, 0.9]},
        "bits_per_weight": draft,
        "bits_per_weight_verify": verify,
        "bits_per_kv": kv,
        "kl": {"default": 0.0391, "grid": 0.0310, "uniform": 0.0302, "tuned": 0.0254}[name],
        "draft_length": length,
        "tokens_per_cycle_predicted": predicted,
        "tokens_per_cycle_counted": counted,
        "tokens_per_cycle_standard_error": error,
        "tokens_per_cycle_gap_in_standard_errors": gap,
        "knobs": {
            "weight_prune": prune if name == "tuned" else {kind: [0.4] * layers for kind in KINDS},
            "weight_cut_bits": cut if name == "tuned" else {kind: [4.0] * layers for kind in KINDS},
            "kv_prune": [0.05] * layers,
            "kv_cut_bits": [1.0] * layers,
            "draft_length": length,
        },
        # 16-bit decoding takes 1.17 times as long as that of the stored format.
        "cycle": {"draft_step_s": 3e-3, "verify_s": 11e-3, "ar_bf16_s": 11.7e-3, "ar_stored_s": 10e-3},
        "operators": {
            "draft": {"qkv": 0.4e-3, "gate_up": draft * 1e-3, "lm_head": 1e-3},
            "verify": {"qkv": 1.1e-3, "gate_up": verify * 1e-3, "lm_head": 1.2e-3},
            "ar_bf16": {"qkv": 1.3e-3, "attention": 0.2e-3, "gate_up": 15e-3, "lm_head": 1.1e-3},
        },
        "roofline": {
            "draft": {"flop_per_byte": 16 / draft, "flops_per_s": 15e12 / draft},
            "verify": {"flop_per_byte": 110 / verify, "flops_per_s": 105e12 / verify},
            "ar_bf16": {"flop_per_byte": 1.03, "flops_per_s": 1.01e12},
        },
        "status": dict(STATUS),
    }


def read(entry):
    """The typed result of an entry."""
    return TuneResult.from_plain(entry)


@pytest.fixture(scope="session")
def make_entry():
    """A function that makes one entry; `pays=False` makes every draft slower than decoding of the stored format."""

    def make(*, device="rtx-4090", architecture="llama-3.1-8b", layers=2, pays=True):
        entry = {
            "schema_version": 1,
            "model": {"name": "embedded", "parameters": 3082496, "note": "a byte-level network"},
            "architecture": architecture,
            "device": device,
            "workload": {"batch": 1, "context_tokens": 1024.0},
            "decoding": {"temperature": 0.0, "prompts": 96, "prompt_tokens": 128, "output_tokens": 64},
            "text": "held-out text",
            "scheme": "cassandra1",
            "seed": 17,
            "configurations": {name: configuration(name, layers) for name in NUMBERS},
            "grid": [
                {
                    "weight_prune": prune,
                    "weight_cut_bits": bits,
                    "alpha_token": 1.0 - 0.4 * prune**2 - 0.01 * bits,
                    "bits_per_weight": 1.0 + (1.0 - prune) * (10.9 - bits),
                    "draft_length": 5,
                    "speedup_vs_bf16_ar": 1.5 + prune,
                }
                for prune in (0.0, 0.3, 0.6)
                for bits in (0, 2, 5)
            ],
            "ratios": {
                "tuned_vs_grid": {"ratio": 1.14, "low": 1.11, "high": 1.16},
                "tuned_vs_uniform": {"ratio": 1.02, "low": 0.98, "high": 1.05},
                "tuned_vs_default": {"ratio": 1.21, "low": 1.18, "high": 1.24},
            },
            "lossless": {"prompts": 96, "tokens": 6144, "mismatches": 0, "ties": 1, "smallest_margin": 0.0013},
            "timing_s": {"grid": 81.23, "ascent/a": 101.5, "ascent/b": 100.0},
            "versions": {"jax": "0.10.0", "python": "3.11.9"},
        }
        if not pays:
            for found in entry["configurations"].values():
                # Over bf16 AR still 1.11 to 1.15, which the stored format alone beats with 1.17.
                found["speedup_vs_stored_ar"] = round(0.88 + 0.02 * found["bits_per_weight"], 3)
                found["speedup_vs_bf16_ar"] = 1.17 * found["speedup_vs_stored_ar"]
        return entry

    return make


@pytest.fixture(scope="session")
def make_metrics():
    """A function that makes the lines of both stages of a device."""

    def make(device="rtx-4090", steps=4):
        return [
            {
                "device": device,
                "stage": stage,
                "step": step,
                "speedup": start + 0.1 * step,
                "temperature": 0.3 / (step + 1),
            }
            for stage, start in (("tuned", 2.0), ("uniform", 1.5))
            for step in range(steps)
        ]

    return make
