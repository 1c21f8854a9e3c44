"""Make the small random checkpoints, and what transformers computes from them, that the loader is tested with.

Needs torch, transformers, safetensors and numpy, and nothing of jaxspec: `python tests/golden/make_hf_golden.py` writes
`tests/golden/hf/`; with `--check` it makes everything anew in a temporary folder and compares. Weights and tokens come
from NumPy generators of fixed seeds and must agree exactly, logits within 1e-5 of their largest magnitude.

Each case is a directory as `save_pretrained` writes it, and beside it `expected.npz`:
    tokens_<n>, logits_<n>: "2 n" and "2 n vocab" for texts of n tokens, all at once, without a cache.
    prompt_lengths: "2"; cached_tokens: "2 token"; prefill_logits: "2 vocab", of each prompt's last token;
    cached_logits: "2 decoded vocab": after the prompt, four steps of one token and one of three, through the KV cache.
    inverse_frequencies: "plane", of a text of one token; local_inverse_frequencies: of layers with a window, where they
    have their own; neither in families without rotation.
Logits are computed in float32 from the stored weights, with transformers' eager attention.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

OUT = Path(__file__).parent / "hf"
TEXT_LENGTHS = (1, 7, 33)
PROMPT_LENGTHS = (5, 12)
STEPS = (1, 1, 1, 1, 3)


@dataclasses.dataclass(frozen=True)
class Case:
    """One checkpoint: its family, its shape, and how it is stored."""

    name: str
    model_type: str
    settings: dict[str, Any]
    seed: int
    embed_scale: float = 1.0
    vector_mean: float = 1.0
    dtype: str = "float32"
    max_shard_size: str = "1GB"


CASES = (
    # Small embeddings, so that the epsilon of the first norm is a tenth of the mean square it is added to.
    Case(
        name="llama_grouped",
        model_type="llama",
        settings={
            "vocab_size": 97,
            "hidden_size": 48,
            "intermediate_size": 80,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-5,
        },
        seed=11,
        embed_scale=0.01,
    ),
    # A head_dim that is not hidden / heads; a short original context: of eight wavelengths (6 to 20,000 positions) one
    # is kept, two are blended and five divided.
    Case(
        name="llama_scaled_tied",
        model_type="llama",
        settings={
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 56,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "tie_word_embeddings": True,
            "max_position_embeddings": 512,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
        seed=12,
    ),
    Case(
        name="qwen3_untied",
        model_type="qwen3",
        settings={
            "vocab_size": 83,
            "hidden_size": 40,
            "intermediate_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 12,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        },
        seed=13,
    ),
    Case(
        name="qwen3_tied_sharded",
        model_type="qwen3",
        settings={
            "vocab_size": 71,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 10,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5_000.0},
        },
        seed=14,
        max_shard_size="30KB",
    ),
    Case(
        name="llama_bfloat16",
        model_type="llama",
        settings={
            "vocab_size": 67,
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
        },
        seed=15,
        dtype="bfloat16",
    ),
    # Biases of queries, keys and values.
    Case(
        name="qwen2_biased",
        model_type="qwen2",
        settings={
            "vocab_size": 59,
            "hidden_size": 36,
            "intermediate_size": 44,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 50_000.0},
        },
        seed=16,
    ),
    # A head_dim that is not hidden / heads; no sliding window.
    Case(
        name="mistral_whole",
        model_type="mistral",
        settings={
            "vocab_size": 53,
            "hidden_size": 40,
            "intermediate_size": 36,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "sliding_window": None,
        },
        seed=17,
        dtype="bfloat16",
    ),
    # Biases of all matrices, and a base that grows from the 15th token on.
    Case(
        name="llama_dynamic_biased",
        model_type="llama",
        settings={
            "vocab_size": 47,
            "hidden_size": 30,
            "intermediate_size": 34,
            "num_hidden_layers": 2,
            "num_attention_heads": 5,
            "num_key_value_heads": 1,
            "attention_bias": True,
            "mlp_bias": True,
            "max_position_embeddings": 14,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 3_000.0, "factor": 4.0},
        },
        seed=18,
    ),
    # A window in all layers.
    Case(
        name="mistral_window",
        model_type="mistral",
        settings={
            "vocab_size": 43,
            "hidden_size": 32,
            "intermediate_size": 28,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "sliding_window": 6,
        },
        seed=19,
        dtype="bfloat16",
    ),
    # A window in the last two layers of three.
    Case(
        name="qwen3_windows",
        model_type="qwen3",
        settings={
            "vocab_size": 41,
            "hidden_size": 28,
            "intermediate_size": 26,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 10,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 7,
            "max_window_layers": 1,
        },
        seed=20,
        dtype="bfloat16",
    ),
    # Fused tensors, a window, and a rotation of four elements of each head's six.
    Case(
        name="phi3_partial",
        model_type="phi3",
        settings={
            "vocab_size": 61,
            "hidden_size": 36,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "sliding_window": 9,
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.7},
        },
        seed=21,
        dtype="bfloat16",
    ),
    # Two sets of divisors, the second from the 17th token on; stored as float16.
    Case(
        name="phi3_longrope",
        model_type="phi3",
        settings={
            "vocab_size": 45,
            "hidden_size": 32,
            "intermediate_size": 22,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "pad_token_id": 0,
            "max_position_embeddings": 64,
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 2_000.0,
                "short_factor": [1.0, 1.1, 1.3, 1.7],
                "long_factor": [1.2, 2.5, 4.0, 9.0],
            },
        },
        seed=22,
        dtype="float16",
    ),
    # Norms after the blocks alone, norms over all heads; a ramp between kept and divided frequencies.
    Case(
        name="olmo2_yarn",
        model_type="olmo2",
        settings={
            "vocab_size": 57,
            "hidden_size": 40,
            "intermediate_size": 38,
            "num_hidden_layers": 2,
            "num_attention_heads": 5,
            "num_key_value_heads": 1,
            "max_position_embeddings": 256,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 600.0,
                "factor": 4.0,
                "beta_fast": 6.0,
                "original_max_position_embeddings": 64,
            },
        },
        seed=23,
        dtype="bfloat16",
    ),
    # Its four multipliers, biases of attention, divided frequencies.
    Case(
        name="granite_linear",
        model_type="granite",
        settings={
            "vocab_size": 51,
            "hidden_size": 36,
            "intermediate_size": 42,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "embedding_multiplier": 3.5,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.4,
            "logits_scaling": 2.5,
            "rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0},
        },
        seed=24,
        dtype="bfloat16",
    ),
    # Layers 1 and 3 of 0 to 3 are not rotated.
    Case(
        name="smollm3_unrotated",
        model_type="smollm3",
        settings={
            "vocab_size": 49,
            "hidden_size": 32,
            "intermediate_size": 30,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "no_rope_layer_interval": 2,
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 20_000.0},
        },
        seed=25,
        dtype="bfloat16",
    ),
    # Soft caps that bite, windows in layers 0 and 2, a scale of scores that is none of the usual ones.
    Case(
        name="gemma2_capped",
        model_type="gemma2",
        settings={
            "vocab_size": 55,
            "hidden_size": 36,
            "intermediate_size": 32,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 10,
            "query_pre_attn_scalar": 7,
            "sliding_window": 5,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 2.5,
        },
        seed=26,
        embed_scale=0.2,
        dtype="bfloat16",
    ),
    # Layers with a window have a rotation of their own; the other one's frequencies are divided.
    Case(
        name="gemma3_local",
        model_type="gemma3_text",
        settings={
            "vocab_size": 53,
            "hidden_size": 32,
            "intermediate_size": 34,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 12,
            "query_pre_attn_scalar": 12,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 50_000.0},
            },
        },
        seed=27,
        embed_scale=0.2,
        dtype="bfloat16",
    ),
    # Planes of neighbouring elements, half of each head; norms before and after the blocks; fused feed-forward tensors.
    Case(
        name="glm4_interleaved",
        model_type="glm4",
        settings={
            "vocab_size": 46,
            "hidden_size": 40,
            "intermediate_size": 26,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "pad_token_id": 0,
        },
        seed=28,
        dtype="bfloat16",
    ),
    Case(
        name="glm_unbiased",
        model_type="glm",
        settings={
            "vocab_size": 44,
            "hidden_size": 32,
            "intermediate_size": 26,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "attention_bias": False,
            "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.75},
        },
        seed=29,
        dtype="bfloat16",
    ),
    # Learned positions, layer norms, biases, no gate; heads of an odd size.
    Case(
        name="opt_learned",
        model_type="opt",
        settings={
            "vocab_size": 63,
            "hidden_size": 35,
            "ffn_dim": 44,
            "num_hidden_layers": 2,
            "num_attention_heads": 5,
            "max_position_embeddings": 37,
            "word_embed_proj_dim": 35,
        },
        seed=30,
        dtype="float16",
    ),
)


def random_model(case: Case) -> Any:
    """A network whose every parameter is random, norms included; matrices keep the scale of what they multiply."""
    settings = copy.deepcopy(case.settings)  # transformers fills in what it is given
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(case.model_type, **settings)
    )
    rng = np.random.default_rng(case.seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            value = rng.standard_normal(tuple(parameter.shape))
            if parameter.ndim == 1:
                value = case.vector_mean + 0.3 * value
            elif name.endswith("embed_tokens.weight"):
                value = case.embed_scale * value
            else:
                value = parameter.shape[1] ** -0.5 * value
            parameter.copy_(torch.from_numpy(value))
    return model


@torch.no_grad()
def expected(directory: Path, seed: int, dtype: torch.dtype = torch.float32) -> dict[str, np.ndarray]:
    """What transformers computes from the checkpoint in `directory`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=dtype, attn_implementation="eager"
    ).eval()
    vocab = model.config.vocab_size
    rng = np.random.default_rng([seed, 1])
    draw = lambda length: rng.integers(vocab, size=(2, length)).astype(np.int32)
    arrays: dict[str, np.ndarray] = {}
    for length in TEXT_LENGTHS:
        tokens = draw(length)
        arrays[f"tokens_{length}"] = tokens
        arrays[f"logits_{length}"] = model(torch.from_numpy(tokens).long(), use_cache=False).logits.numpy()
    tokens = draw(max(PROMPT_LENGTHS) + sum(STEPS))
    prefill, decoded = [], []
    for row, prompt in zip(torch.from_numpy(tokens).long(), PROMPT_LENGTHS):
        # One sequence at a time: no padding, no mask, nothing that could be wrong twice in the same way.
        result = model(row[None, :prompt], use_cache=True)
        prefill.append(result.logits[0, -1].numpy())
        logits, start = [], prompt
        for step in STEPS:
            result = model(row[None, start : start + step], past_key_values=result.past_key_values, use_cache=True)
            logits.append(result.logits[0].numpy())
            start += step
        decoded.append(np.concatenate(logits))
    return (
        arrays
        | {
            "prompt_lengths": np.array(PROMPT_LENGTHS, np.int32),
            "cached_tokens": tokens,
            "prefill_logits": np.stack(prefill),
            "cached_logits": np.stack(decoded),
        }
        | frequencies(model)
    )


def frequencies(model: Any) -> dict[str, np.ndarray]:
    """The network's own, of a text of one token, where it has any."""
    rotary = getattr(model.model, "rotary_emb", None)
    if rotary is None:
        return {}
    by_type = hasattr(rotary, "layer_types")
    found = {}
    for kind, name in (("full_attention", "inverse_frequencies"), ("sliding_attention", "local_inverse_frequencies")):
        if by_type and kind in rotary.layer_types:
            rotary(torch.zeros(1), torch.zeros(1, 1, dtype=torch.long), kind)
            found[name] = getattr(rotary, f"{kind}_inv_freq").numpy()
    if not by_type:
        rotary(torch.zeros(1), torch.zeros(1, 1, dtype=torch.long))
        found["inverse_frequencies"] = rotary.inv_freq.numpy()
    return found


def write_case(case: Case, directory: Path) -> dict[str, np.ndarray]:
    """Write one checkpoint and its expected.npz; returns the latter's arrays."""
    directory.mkdir(parents=True, exist_ok=True)
    model = random_model(case).to(getattr(torch, case.dtype))
    model.save_pretrained(directory, max_shard_size=case.max_shard_size)
    (directory / "generation_config.json").unlink(missing_ok=True)  # sampling settings, none of the network
    arrays = expected(directory, case.seed)
    np.savez_compressed(directory / "expected.npz", **arrays)
    return arrays


def compare(case: Case, made: Path, stored: Path) -> list[str]:
    """What differs between two folders of one case."""
    problems = []
    names = {path.name for folder in (made, stored) for path in folder.iterdir() if path.suffix != ".npz"}
    for name in sorted(names):
        if not (made / name).exists() or not (stored / name).exists():
            problems.append(f"{case.name}/{name} is in one folder only")
        elif name.endswith(".safetensors") and (made / name).read_bytes() != (stored / name).read_bytes():
            problems.append(f"{case.name}/{name} differs")
    with np.load(made / "expected.npz") as ours, np.load(stored / "expected.npz") as theirs:
        for key in sorted(set(ours) | set(theirs)):
            scale = np.abs(theirs[key]).max()
            if np.abs(ours[key] - theirs[key]).max() > (1e-5 * scale if ours[key].dtype.kind == "f" else 0):
                problems.append(f"{case.name}: {key} differs")
    return problems


def main() -> int:
    """Write all cases, or compare them with what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; compare with the stored files")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.check:
        problems = []
        with tempfile.TemporaryDirectory() as folder:
            for case in CASES:
                write_case(case, Path(folder) / case.name)
                problems += compare(case, Path(folder) / case.name, OUT / case.name)
        print("\n".join(problems) or f"{len(CASES)} cases agree")
        return 1 if problems else 0
    for case in CASES:
        write_case(case, OUT / case.name)
    versions = {
        "numpy": np.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    facts = {"cases": {case.name: dataclasses.asdict(case) for case in CASES}, "versions": versions}
    (OUT / "versions.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
