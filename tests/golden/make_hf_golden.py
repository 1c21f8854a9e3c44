"""Make the small random checkpoints, and what transformers computes from them, that the loader is tested with.

Needs torch, transformers, accelerate (for FP8), safetensors and numpy, and nothing of jaxspec: `python
tests/golden/make_hf_golden.py` writes `tests/golden/hf/`, with names of cases these alone; with `--check` it makes
them anew in a temporary folder and compares. Weights and tokens come
from NumPy generators of fixed seeds and must agree exactly, logits within 1e-5 of their largest magnitude.

Each case is a directory as `save_pretrained` writes it, and beside it `expected.npz`:
    tokens_<n>, logits_<n>: "2 n" and "2 n vocab" for texts of n tokens, all at once, without a cache.
    prompt_lengths: "2"; cached_tokens: "2 token"; prefill_logits: "2 vocab", of each prompt's last token;
    cached_logits: "2 decoded vocab": after the prompt, four steps of one token and one of three, through the KV cache.
    greedy_tokens: "new", after the shorter prompt alone, where a case asks for them.
    inverse_frequencies: "plane", of a text of one token; local_inverse_frequencies: of layers with a window, where they
    have their own; neither in families without rotation.
Logits are computed in float32 from the stored weights, with transformers' eager attention and experts.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from hf_cases import CASES, Case
from safetensors.torch import load_file, save_file

OUT = Path(__file__).parent / "hf"
TEXT_LENGTHS = (1, 7, 33)
PROMPT_LENGTHS = (5, 12)
STEPS = (1, 1, 1, 1, 3)
FP8_BLOCK = (2, 6)  # rows and columns that share a scale


def auto_class(config: Any) -> Any:
    """Of networks that generate text, alone or from images too."""
    text, both = transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText
    # Of Qwen3.5's whole configuration, the class for text makes the decoder alone.
    return both if hasattr(config, "vision_config") and type(config) in both._model_mapping else text


def random_model(case: Case) -> Any:
    """A network whose every parameter is random, norms included; matrices keep the scale of what they multiply."""
    settings = copy.deepcopy(case.settings)  # transformers fills in what it is given
    config = transformers.AutoConfig.for_model(case.model_type, **settings)
    model = auto_class(config).from_config(config)
    rng = np.random.default_rng(case.seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            value = rng.standard_normal(tuple(parameter.shape))
            if parameter.ndim == 1:
                value = case.vector_mean + 0.3 * value
            elif name.endswith("embed_tokens.weight"):
                value = case.embed_scale * value
            else:
                value = parameter.shape[-1] ** -0.5 * value
            parameter.copy_(torch.from_numpy(value))
        # Of Ernie 4.5 the correction is a parameter.
        for name, buffer in sorted([*model.named_buffers(), *model.named_parameters()]):
            if name.endswith(("e_score_correction_bias", "expert_bias")):  # as large as the scores that it corrects
                buffer.copy_(torch.from_numpy(0.3 * rng.standard_normal(tuple(buffer.shape))))
            elif name.endswith("act_fn.beta"):  # of Apertus, whose releases have 0.5 and -1e-6 in all layers
                buffer.fill_(0.8 + 0.3 * rng.standard_normal())
            elif name.endswith("act_fn.eps"):
                buffer.fill_(-abs(rng.standard_normal()))
    return model


@torch.no_grad()
def expected(directory: Path, seed: int, dtype: torch.dtype = torch.float32, new: int = 0) -> dict[str, np.ndarray]:
    """What transformers computes from the checkpoint in `directory`, and so many tokens of greedy generation."""
    options = {"attn_implementation": "eager", "experts_implementation": "eager"}
    packing = json.loads((directory / "config.json").read_text()).get("quantization_config")
    if packing is not None:
        unpacked = {"mxfp4": transformers.Mxfp4Config, "fp8": transformers.FineGrainedFP8Config}
        options["quantization_config"] = unpacked[packing["quant_method"]](dequantize=True)
    auto = auto_class(transformers.AutoConfig.from_pretrained(directory))
    model = auto.from_pretrained(directory, dtype=dtype, **options).eval()
    if packing is not None:
        model = model.to(dtype)  # what was unpacked is in 16 bits, whatever was asked for
    vocab = model.config.get_text_config().vocab_size
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
    greedy = {}
    if new:
        prompt = torch.from_numpy(tokens[:1, : min(PROMPT_LENGTHS)]).long()
        options = {"attention_mask": torch.ones_like(prompt), "do_sample": False, "eos_token_id": None}
        made = model.generate(prompt, max_new_tokens=new, pad_token_id=0, **options)
        greedy["greedy_tokens"] = made[0, prompt.shape[1] :].numpy().astype(np.int32)
    return (
        arrays
        | greedy
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
    parts = (getattr(model.model, name, None) for name in ("language_model", "text_model"))
    text = next(filter(None, parts), model.model)
    rotary = getattr(text, "rotary_emb", None) or getattr(text, "pos_emb", None)
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


def pack_mxfp4(directory: Path, seed: int) -> None:
    """Replace the experts of a checkpoint by random ones in MXFP4, in the layout of the gpt-oss release."""
    rng, path = np.random.default_rng([seed, 2]), directory / "model.safetensors"
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in sorted(load_file(path).items()):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        shape = (experts, rows, columns // 32)
        tensors[f"{name}_blocks"] = torch.from_numpy(rng.integers(256, size=(*shape, 16)).astype(np.uint8))
        # Elements have a root mean square of 2.9.
        scale = 127 - round(np.log2(2.9 * columns**0.5))
        tensors[f"{name}_scales"] = torch.from_numpy((scale + rng.integers(-2, 2, size=shape)).astype(np.uint8))
    save_file(tensors, path, metadata={"format": "pt"})
    told = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    tell(directory, {"quantization_config": told})


def pack_fp8(directory: Path, seed: int) -> None:
    """Replace the layers' matrices by random ones in FP8 with a scale for each block, in the layout of DeepSeek-V3's release.

    Scales have four significant bits, as elements have, so that their products are exact in bfloat16.
    """
    rng, path = np.random.default_rng([seed, 2]), directory / "model.safetensors"
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in sorted(load_file(path).items()):
        if tensor.ndim != 2 or not name.endswith("_proj.weight"):
            tensors[name] = tensor
            continue
        rows, columns = tensor.shape
        elements = torch.from_numpy(64 * rng.standard_normal((rows, columns))).to(torch.float8_e4m3fn)
        blocks = (rows // FP8_BLOCK[0], columns // FP8_BLOCK[1])
        scales = 2.0 ** round(np.log2(columns**-0.5 / 64)) * rng.integers(8, 16, size=blocks) / 12
        bits = np.frexp(scales)
        tensors[name] = elements
        tensors[f"{name}_scale_inv"] = torch.from_numpy(np.ldexp(np.round(bits[0] * 16) / 16, bits[1])).float()
    save_file(tensors, path, metadata={"format": "pt"})
    told = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": list(FP8_BLOCK)}
    tell(directory, {"quantization_config": told})


def transpose_experts(directory: Path, seed: int) -> None:
    """Exchange the last two axes of the experts' tensors, as releases have them and transformers reads them too."""
    del seed
    tensors = load_file(directory / "model.safetensors")
    turned = {name: tensor.mT.contiguous() for name, tensor in tensors.items() if ".experts." in name}
    save_file(tensors | turned, directory / "model.safetensors", metadata={"format": "pt"})


def stack_experts(directory: Path, seed: int) -> None:
    """Replace the matrices of a layer's experts by two tensors of them all, in the layout of the Qwen3.5 releases."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    layers = sorted({name.split(".experts.")[0] for name in tensors if ".experts." in name})
    for layer in layers:
        of = {kind: [] for kind in ("gate", "up", "down")}
        while (first := f"{layer}.experts.{len(of['down'])}.") + "down_proj.weight" in tensors:
            for kind, found in of.items():
                found.append(tensors.pop(f"{first}{kind}_proj.weight"))
        gate_up = [torch.cat(both) for both in zip(of["gate"], of["up"])]
        tensors[f"{layer}.experts.gate_up_proj"] = torch.stack(gate_up)
        tensors[f"{layer}.experts.down_proj"] = torch.stack(of["down"])
    save_file(tensors, path, metadata={"format": "pt"})


def tell(directory: Path, changes: dict[str, Any]) -> None:
    """Change config.json; None takes a key out."""
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    stated = {key: value for key, value in config.items() if value is not None or key not in changes}
    path.write_text(json.dumps(stated, indent=2, sort_keys=True) + "\n")


def write_case(case: Case, directory: Path) -> dict[str, np.ndarray]:
    """Write one checkpoint and its expected.npz; returns the latter's arrays."""
    directory.mkdir(parents=True, exist_ok=True)
    model = random_model(case).to(getattr(torch, case.dtype))
    model.save_pretrained(directory, max_shard_size=case.max_shard_size)
    (directory / "generation_config.json").unlink(missing_ok=True)  # sampling settings, none of the network
    if case.packed is not None:
        {"mxfp4": pack_mxfp4, "fp8": pack_fp8, "stacked": stack_experts, "transposed": transpose_experts}[case.packed](
            directory, case.seed
        )
    arrays = expected(directory, case.seed, new=case.greedy)
    if case.released is not None:
        tell(directory, case.released)
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
    parser.add_argument("names", nargs="*", metavar="NAME", help="of cases; none: all of them")
    parser.add_argument("--check", action="store_true", help="write nothing; compare with the stored files")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cases = [case for case in CASES if not args.names or case.name in args.names]
    if args.check:
        problems = []
        with tempfile.TemporaryDirectory() as folder:
            for case in cases:
                write_case(case, Path(folder) / case.name)
                problems += compare(case, Path(folder) / case.name, OUT / case.name)
        print("\n".join(problems) or f"{len(cases)} cases agree")
        return 1 if problems else 0
    for case in cases:
        write_case(case, OUT / case.name)
    versions = {
        "numpy": np.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    facts = {"versions": versions}
    if args.names:  # made after the others, whose versions stay
        stored = json.loads((OUT / "versions.json").read_text())
        facts = stored | {"later": stored.get("later", {}) | {case.name: versions for case in cases}}
    (OUT / "versions.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
