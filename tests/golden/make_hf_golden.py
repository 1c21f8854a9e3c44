"""Make the small random checkpoints, and what transformers computes from them, that the loader is tested with.

Needs torch, transformers, safetensors and numpy, and nothing of jaxspec: `python tests/golden/make_hf_golden.py` writes
`tests/golden/hf/`; with `--check` it makes everything anew in a temporary folder and compares. Weights and tokens come
from NumPy generators of fixed seeds and must agree exactly, logits within 1e-5 of their largest magnitude.

Each case is a directory as `save_pretrained` writes it, and beside it `expected.npz`:
    tokens_<n>, logits_<n>: "2 n" and "2 n vocab" for texts of n tokens, all at once, without a cache.
    prompt_lengths: "2"; cached_tokens: "2 token"; prefill_logits: "2 vocab", of each prompt's last token;
    cached_logits: "2 decoded vocab": after the prompt, four steps of one token and one of three, through the KV cache.
    inverse_frequencies: "head_dim / 2".
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
                value = 1 + 0.3 * value
            elif name == "model.embed_tokens.weight":
                value = case.embed_scale * value
            else:
                value = parameter.shape[1] ** -0.5 * value
            parameter.copy_(torch.from_numpy(value))
    return model


@torch.no_grad()
def expected(directory: Path, seed: int) -> dict[str, np.ndarray]:
    """What transformers computes from the checkpoint in `directory`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager"
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
    return arrays | {
        "prompt_lengths": np.array(PROMPT_LENGTHS, np.int32),
        "cached_tokens": tokens,
        "prefill_logits": np.stack(prefill),
        "cached_logits": np.stack(decoded),
        "inverse_frequencies": model.model.rotary_emb.inv_freq.numpy(),
    }


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
