"""Make small quantized checkpoints, and what their formats' own code and transformers compute from them.

Needs torch, transformers, compressed-tensors, bitsandbytes, safetensors and numpy, and nothing of jaxspec: `python
tests/golden/make_quantized_golden.py [FOLDER [CASE ...]]` writes `tests/golden/quantized/`. Matrices of compressed-tensors and
of bitsandbytes are packed and dequantized by these libraries; FP4 of Quark and ModelOpt by the definition of their layouts, low
bits first; those of GPTQ and AWQ by the loops of AutoGPTQ's and AutoAWQ's own `pack`, and as their kernels'
reference dequantizes. Each case is a directory with `expected.npz`: `tokens`, `logits` in float32 of the network with the
dequantized matrices, and those of its second layer under their names.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

OUT = Path(__file__).parent / "quantized"
SETTINGS = {
    "vocab_size": 40,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def network(seed, dtype, **other):
    """A small random Llama."""
    config = transformers.LlamaConfig(**SETTINGS | other, dtype=str(dtype).removeprefix("torch."))
    model = transformers.LlamaForCausalLM(config).to(dtype)
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for _, value in sorted(model.named_parameters()):
            scale = 0.3 if value.ndim == 1 else value.shape[-1] ** -0.5
            drawn = rng.standard_normal(tuple(value.shape)) * scale + (value.ndim == 1)
            value.copy_(torch.from_numpy(drawn).to(dtype))
    return config, model


def scales_of(weight, args, dtype):
    """Scales, and zero points of asymmetric forms, by the extremes of what shares one."""
    rows, columns = weight.shape
    if args.strategy == "tensor":
        parts = weight.reshape(1, 1, -1)
    elif args.strategy == "block":
        block = args.block_structure
        pad = torch.nn.functional.pad(weight, (0, -columns % block[1], 0, -rows % block[0]))
        parts = pad.reshape(pad.shape[0] // block[0], block[0], -1, block[1]).transpose(1, 2).flatten(2)
    else:
        parts = weight.reshape(rows, -1, args.group_size or columns)
    low, high = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
    most = 448.0 if args.type == "float" else 2.0 ** (args.num_bits - 1) - 1
    if args.symmetric:
        found = (torch.maximum(-low, high) / most).to(dtype), None
    else:
        scale = ((high - low) / (2**args.num_bits - 1)).to(dtype)
        zero = (torch.round(-low / scale) - 2 ** (args.num_bits - 1)).clamp(-(2 ** (args.num_bits - 1)), most)
        found = scale, zero.to(torch.int8)
    return tuple(None if value is None else value.reshape(1) if args.strategy == "tensor" else value for value in found)


def fp4_scales(weight, group):
    """Scales of NVFP4 and of all of them."""
    largest = weight.reshape(weight.shape[0], -1, group).abs().amax(-1).float()
    whole = (448.0 * 6.0 / largest.max()).reshape(1)
    return (largest / 6.0 * whole).to(torch.float8_e4m3fn).to(weight.dtype), whole


def compressed(name, weight, scheme, form, dtype):
    """Tensors of a matrix in a form of compressed-tensors, and its values again."""
    library, args = BaseCompressor.get_value_from_registry(form), scheme.weights
    if form == "nvfp4-pack-quantized":
        scale, whole = fp4_scales(weight, args.group_size)
        state = {"weight": weight, "weight_scale": scale, "weight_global_scale": whole}
    elif form == "mxfp4-pack-quantized":
        largest = weight.reshape(weight.shape[0], -1, 32).abs().amax(-1).float()
        state = {"weight": weight, "weight_scale": torch.exp2(torch.floor(torch.log2(largest)) - 2).to(weight.dtype)}
    else:
        scale, zero = scales_of(weight, args, dtype)
        state = {"weight": weight, "weight_scale": scale} | ({} if zero is None else {"weight_zero_point": zero})
    packed = library.compress(state, scheme)
    values = library.decompress(packed, scheme)["weight"]
    return {f"{name}.{part}": value.contiguous() for part, value in packed.items()}, values


def packed_columns(codes, bits):
    """AutoGPTQ's loop for codes whose width divides 32, and the dense stream that its loop for 3 bits writes."""
    out = np.zeros((codes.shape[0] * bits // 32, codes.shape[1]), np.uint32)
    for i in range(codes.shape[0]):
        word, place = divmod(i * bits, 32)
        out[word] |= (codes[i].astype(np.uint64) << place).astype(np.uint32)
        if place + bits > 32:
            out[word + 1] |= (codes[i] >> (32 - place)).astype(np.uint32)
    return out.view(np.int32)


def gptq(name, weight, bits, group, *, shuffled, offset):
    """A matrix in GPTQ, and its values."""
    columns = weight.shape[1]
    groups = np.arange(columns) // group
    if shuffled:
        groups = np.random.default_rng(5).permutation(groups)
    wide = weight.float().numpy()
    low = np.stack([wide[:, groups == g].min(1) for g in range(groups.max() + 1)]).clip(max=0)
    high = np.stack([wide[:, groups == g].max(1) for g in range(groups.max() + 1)]).clip(min=0)
    most = 2**bits - 1
    scales = ((high - low) / most).astype(np.float16)
    zeros = np.round(-low / scales).clip(1, most).astype(np.int64)
    codes = np.round(wide.T / scales[groups] + zeros[groups]).clip(0, most).astype(np.uint32)
    values = scales[groups] * (codes.astype(np.int64) - zeros[groups]).astype(np.float16)
    tensors = {
        "qweight": packed_columns(codes, bits),
        "qzeros": np.ascontiguousarray(packed_columns((zeros - offset).astype(np.uint32).T, bits).T),
        "scales": scales,
        "g_idx": groups.astype(np.int32),
    }
    return {f"{name}.{part}": torch.from_numpy(value) for part, value in tensors.items()}, torch.from_numpy(
        values.T.copy()
    )


def awq(name, weight, group):
    """A matrix in AWQ, and its values."""
    wide = weight.float().numpy().T.reshape(-1, group, weight.shape[0])
    low, high = wide.min(1).clip(max=0), wide.max(1).clip(min=0)
    scales = ((high - low) / 15).astype(np.float16)
    zeros = np.round(-low / scales).clip(0, 15).astype(np.int64)
    codes = np.round(wide / scales[:, None] + zeros[:, None]).clip(0, 15).astype(np.int64)
    values = (scales[:, None] * (codes - zeros[:, None]).astype(np.float16)).reshape(-1, weight.shape[0])

    def pack(numbers):
        out = np.zeros((numbers.shape[0], numbers.shape[1] // 8), np.uint32)
        for column in range(out.shape[1]):
            for place, member in enumerate(AWQ_ORDER):
                out[:, column] |= (numbers[:, column * 8 + member].astype(np.uint32)) << np.uint32(4 * place)
        return out.view(np.int32)

    tensors = {"qweight": pack(codes.reshape(values.shape)), "qzeros": pack(zeros), "scales": scales}
    return {f"{name}.{part}": torch.from_numpy(value) for part, value in tensors.items()}, torch.from_numpy(
        values.T.copy()
    )


def bitsandbytes_4bit(name, weight, kind, double):
    """A matrix in 4 bits of bitsandbytes, and its values."""
    packed, state = quantize_4bit(weight, blocksize=64, compress_statistics=double, quant_type=kind)
    parts = {f"{name}.weight.{part}": value for part, value in state.as_dict(packed=True).items()}
    return {f"{name}.weight": packed} | parts, dequantize_4bit(packed, state)


def fp4_codes(scaled):
    """Nearest elements in E2M1, two in a byte, and their values."""
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nearest = (scaled.abs()[..., None] - levels).abs().argmin(-1)
    codes = (nearest + 8 * (scaled < 0)).to(torch.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4, levels[nearest] * torch.where(scaled < 0, -1.0, 1.0)


def quark(name, weight):
    """A matrix in MXFP4 of Quark, and its values."""
    wide = weight.float()
    exponent = torch.floor(torch.log2(wide.reshape(len(wide), -1, 32).abs().amax(-1))) - 2
    scale = torch.exp2(exponent).repeat_interleave(32, 1)
    codes, levels = fp4_codes(wide / scale)
    return {f"{name}.weight": codes, f"{name}.weight_scale": (exponent + 127).to(torch.uint8)}, levels * scale


def modelopt(name, weight):
    """A matrix in NVFP4 of ModelOpt, and its values."""
    wide = weight.float()
    largest = wide.reshape(len(wide), -1, 16).abs().amax(-1)
    whole = largest.max() / (6.0 * 448.0)
    scale = (largest / 6.0 / whole).to(torch.float8_e4m3fn)
    step = (scale.float() * whole).repeat_interleave(16, 1)
    codes, levels = fp4_codes(wide / step)
    parts = {"weight": codes, "weight_scale": scale, "weight_scale_2": whole}
    return {f"{name}.{part}": value for part, value in parts.items()}, (levels * step).to(weight.dtype)


def scheme(inputs=None, **weights):
    """A scheme of compressed-tensors."""
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights), input_activations=inputs)


INT8 = QuantizationArgs(num_bits=8, type="int", strategy="token", dynamic=True)
FP8 = QuantizationArgs(num_bits=8, type="float", strategy="token", dynamic=True)
PLAIN, HALF, WIDE = torch.bfloat16, torch.float16, torch.float32

#: Name -> format of compressed-tensors, its scheme, type of the network.
COMPRESSED = {
    "int4_groups": ("pack-quantized", scheme(num_bits=4, type="int", strategy="group", group_size=32), PLAIN),
    "int4_zeros": ("pack-quantized", scheme(num_bits=4, type="int", strategy="group", group_size=16, symmetric=False), WIDE),
    "int3_rows": ("pack-quantized", scheme(num_bits=3, type="int", strategy="channel"), WIDE),
    "int8_rows": ("int-quantized", scheme(INT8, num_bits=8, type="int", strategy="channel"), PLAIN),
    "fp8_tensor": ("float-quantized", scheme(FP8, num_bits=8, type="float", strategy="tensor"), WIDE),
    "fp8_rows": ("float-quantized", scheme(FP8, num_bits=8, type="float", strategy="channel"), PLAIN),
    "fp8_blocks": (
        "float-quantized", scheme(FP8, num_bits=8, type="float", strategy="block", block_structure=[40, 24]), WIDE,
    ),
    "nvfp4": (
        "nvfp4-pack-quantized", scheme(num_bits=4, type="float", strategy="tensor_group", group_size=16), PLAIN,
    ),
    "mxfp4": ("mxfp4-pack-quantized", scheme(num_bits=4, type="float", strategy="group", group_size=32), PLAIN),
}  # fmt: skip
GPTQ = {
    "gptq": ({"bits": 4, "checkpoint_format": "gptq", "desc_act": False, "sym": False}, 32, False),
    "gptq_shuffled": ({"bits": 4, "checkpoint_format": "gptq_v2", "desc_act": True, "sym": False}, 32, True),
    "gptq_3bit": ({"bits": 3, "desc_act": False, "sym": False}, 32, False),
}
FOUR_BITS = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
OF_QUARK = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
#: Name -> `quantization_config`, type of the network, what packs a matrix.
OTHERS = {
    "nf4": (FOUR_BITS, PLAIN, functools.partial(bitsandbytes_4bit, kind="nf4", double=False)),
    "nf4_double": (
        FOUR_BITS | {"bnb_4bit_use_double_quant": True}, HALF, functools.partial(bitsandbytes_4bit, kind="nf4", double=True),
    ),
    "mxfp4_quark": ({"quant_method": "quark", "global_quant_config": {"weight": OF_QUARK}}, PLAIN, quark),
    "nvfp4_modelopt": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, PLAIN, modelopt),
}  # fmt: skip
AWQ = {"awq": ({"bits": 4, "version": "gemm", "zero_point": True}, 32)}


def matrices(model):
    """Names of the quantized modules."""
    return [
        name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and "lm_head" not in name
    ]


def make(name, seed, out):
    """One case."""
    dtype = COMPRESSED[name][2] if name in COMPRESSED else OTHERS[name][1] if name in OTHERS else HALF
    # Rows of whole blocks of 64.
    config, model = network(seed, dtype, **({"intermediate_size": 128} if "nf4" in name else {}))
    tensors, expected = dict(model.state_dict()), {}
    for module in matrices(model):
        weight = tensors.pop(f"{module}.weight")
        if name in COMPRESSED:
            form, how, _ = COMPRESSED[name]
            own, values = compressed(module, weight, how, form, dtype)
        elif name in GPTQ:
            settings, group, shuffled = GPTQ[name]
            offset = settings.get("checkpoint_format") != "gptq_v2"
            own, values = gptq(module, weight, settings["bits"], group, shuffled=shuffled, offset=int(offset))
        elif name in OTHERS:
            own, values = OTHERS[name][2](module, weight)
        else:
            own, values = awq(module, weight, AWQ[name][1])
        tensors |= own
        expected[f"{module}.weight"] = values
    if name in COMPRESSED:
        form, how, _ = COMPRESSED[name]
        stated = {
            "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": json.loads(how.model_dump_json())},
        }  # fmt: skip
    elif name in OTHERS:
        stated = OTHERS[name][0]
    else:
        own = GPTQ[name][0] if name in GPTQ else AWQ[name][0]
        stated = {"quant_method": "gptq" if name in GPTQ else "awq", "group_size": 32, **own}
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    text = config.to_dict() | {"architectures": ["LlamaForCausalLM"], "quantization_config": stated}
    (folder / "config.json").write_text(json.dumps(text, indent=2, sort_keys=True) + "\n")
    save_file(
        {key: value.contiguous() for key, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    wide = transformers.LlamaForCausalLM(config).float()
    wide.load_state_dict({key: value.float() for key, value in model.state_dict().items()})
    wide.model.rotary_emb = type(wide.model.rotary_emb)(config)  # its buffer was made in the network's type
    with torch.no_grad():
        for key, value in expected.items():
            wide.get_parameter(key).copy_(value.float())
        tokens = torch.from_numpy(np.random.default_rng(seed).integers(0, 40, (2, 17)))
        logits = wide(tokens).logits
    np.savez_compressed(
        folder / "expected.npz", tokens=tokens.numpy(), logits=logits.numpy(),
        **{key: value.float().numpy() for key, value in expected.items() if "layers.1" in key},
    )  # fmt: skip


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    for number, case in enumerate((*COMPRESSED, *GPTQ, *AWQ, *OTHERS)):
        if case in sys.argv[2:] or len(sys.argv) < 3:
            make(case, number, place)
            print(case)
