"""Count the parameters of networks that transformers builds from a config.json, which the catalog is tested with.

Needs torch and transformers, and nothing of ours: `python tests/golden/make_parameter_counts.py` counts the networks of all
configurations in `tests/hwmodels/data/parameter_counts.json` anew and writes it; with `--check` it compares. A new case is a
name with its "config" in that file. Networks are built on torch's meta device, without weights. What is counted is what a
checkpoint stores: every tensor of the state dictionary, tied ones once. Counts are by group: "embed", "attention" (its
matrices), "ffn" (matrices of dense layers), "router", "experts", "shared", "lm_head", and "norm" for every vector;
"window_layers" are those with a window or chunks, where the configuration
says so layer by layer, "linear_layers" those with linear attention. "layers_and_hidden_size" are what a family has where a
file states neither.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

OUT = Path(__file__).parents[1] / "hwmodels" / "data" / "parameter_counts.json"


GROUPS = (
    ("lm_head", r"^(lm_head|embed_out)\."),
    ("embed", r"(embed_tokens|embed_positions|embed_in|word_embeddings|embeddings|wte|wpe)\."),
    ("shared", r"(shared_experts?|shared_mlp|latent_proj)\."),
    ("router", r"(router|mlp\.gate|feed_forward\.gate|block_sparse_moe\.gate|moe\.gate|mixer\.gate)\."),
    ("experts", r"\.experts\.|block_sparse_moe\.(input|output)_linear"),
    ("attention", r"(self_attn|attention|self_attention|attn)\.|(mixer|conv)\.(q|k|v|o|in|out)_proj"),
    ("ffn", r"(mlp|fc1|fc2|feed_forward)\b|mixer\.(up|down)_proj"),
)


def group_of(name: str, shape: tuple[int, ...]) -> str:
    """The group of one tensor."""
    experts_bias = "experts" in name and name.endswith("bias")
    # A convolution has a vector per channel.
    norm = re.search(r"conv1d|conv\.conv|correction_bias$", name) or re.search(
        r"(norm|ln_\w+|layernorm)(\.norms\.\d+)?\.(weight|bias)$", name
    )
    if len(shape) < 2 or experts_bias or norm or "shared_expert_gate" in name:
        return "norm"
    for group, pattern in GROUPS:
        if re.search(pattern, name):
            return group
    raise ValueError(f"no group for {name} of shape {shape}")


def count(raw: dict[str, Any]) -> dict[str, int]:
    """Group -> stored elements, the total, and the layers with a window."""
    config = CONFIG_MAPPING[raw["model_type"]].from_dict(dict(raw))
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config)
    network.tie_weights()
    counts: dict[str, int] = {}
    seen: set[int] = set()
    for name, tensor in network.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        group = group_of(name, tuple(tensor.shape))
        counts[group] = counts.get(group, 0) + tensor.numel()
    windows = [
        kind in ("sliding_attention", "chunked_attention") for kind in getattr(config, "layer_types", None) or []
    ]
    linear = [kind in ("linear_attention", "conv") for kind in getattr(config, "layer_types", None) or []]
    return {
        "total": sum(counts.values()),
        **dict(sorted(counts.items())),
        **({"window_layers": sum(windows)} if windows else {}),
        **({"linear_layers": sum(linear)} if any(linear) else {}),
    }


def main() -> None:
    """Write the counts, or compare with those written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    transformers.logging.set_verbosity_error()
    stored = json.loads(OUT.read_text(encoding="utf-8"))
    given = {name: case["config"] for name, case in stored["cases"].items()}
    cases = {name: {"config": raw, "counts": count(raw)} for name, raw in given.items()}
    families = sorted({case["config"]["model_type"] for case in cases.values()})
    classes = {family: CONFIG_MAPPING[family]() for family in families}
    sizes_of = {family: [config.num_hidden_layers, config.hidden_size] for family, config in classes.items()}
    if check:
        differing = ["defaults"] if stored["layers_and_hidden_size"] != sizes_of else []
        differing += [name for name, case in cases.items() if case != stored["cases"][name]]
        print(f"{len(cases)} cases counted; differing: {sorted(differing) or 'none'}")
        sys.exit(bool(differing))
    # One line per case.
    lines = [f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items()]
    head = f'{{"transformers": "{transformers.__version__}",\n"layers_and_hidden_size": {json.dumps(sizes_of)},\n"cases": {{\n'
    text = head + ",\n".join(lines) + "\n}}\n"
    OUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
