"""GGUF files of small networks: directories of Hugging Face checkpoints, converted as llama.cpp's converters do it.

Source: llama.cpp, `convert_hf_to_gguf.py`: names by the library's own map, keys by its writer.
"""

import json

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

#: `model_type` -> architecture, whether rows of queries and keys are permuted, what norms are stored plus.
CONVERTED = {
    "llama": ("llama", True, 0),
    "mistral": ("llama", True, 0),
    "mixtral": ("llama", True, 0),
    "qwen2": ("qwen2", False, 0),
    "qwen3": ("qwen3", False, 0),
    "qwen3_moe": ("qwen3moe", False, 0),
    "gemma2": ("gemma2", False, 1),
    "gemma3_text": ("gemma3", False, 1),
    "phi3": ("phi3", False, 0),
    "olmo2": ("olmo2", False, 0),
    "granite": ("granite", True, 0),
    "smollm3": ("smollm3", True, 0),
    "seed_oss": ("seed_oss", False, 0),
}

QUANTIZATION = gguf.GGMLQuantizationType


def permute(weights, heads):
    """`LlamaModel.permute`."""
    paired = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return paired.swapaxes(1, 2).reshape(weights.shape)


def checkpoint(directory):
    """Settings and tensors of a directory."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        tensors |= load_file(path)
    return json.loads((directory / "config.json").read_text()), tensors


def merged_experts(tensors):
    """Tensors with those of a layer's experts as one."""
    found = {}
    for name, value in tensors.items():
        before, experts, after = name.partition(".experts.")
        if not experts:
            found[name] = value
            continue
        number, _, part = after.partition(".")
        found.setdefault(f"{before}.experts.{part}", {})[int(number)] = value
    return {
        name: np.stack([value[i] for i in range(len(value))]) if isinstance(value, dict) else value
        for name, value in found.items()
    }


def tensor_kind(value):
    """As it is stored: vectors in float32."""
    if value.ndim == 1 or value.dtype == np.float32:
        return QUANTIZATION.F32
    return QUANTIZATION.BF16 if value.dtype == ml_dtypes.bfloat16 else QUANTIZATION.F16


def add_values(writer, name, value, kind=None):
    """A tensor of values, or of blocks of a type of few bits."""
    kind = tensor_kind(value) if kind is None else kind
    wide = np.ascontiguousarray(value.astype(np.float32))
    writer.add_tensor(name, wide if kind == QUANTIZATION.F32 else gguf.quants.quantize(wide, kind), raw_dtype=kind)


def add_tensors(writer, config, tensors, kind=None):
    """All tensors of a network.

    Args:
        kind: of all matrices; None: as they are.
    """
    architecture, permuted, added = CONVERTED[config["model_type"]]
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config["num_hidden_layers"])
    heads = config["num_attention_heads"]
    for name, value in merged_experts(tensors).items():
        if permuted and "q_proj" in name:
            value = permute(value, heads)
        if permuted and "k_proj" in name:
            value = permute(value, config["num_key_value_heads"])
        if added and name.endswith("norm.weight"):
            value = value.astype(np.float32) + added
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        add_values(writer, found, value, kind if value.ndim > 1 else None)


def add_rope(writer, config):
    """Rotation: its base and how it is scaled."""
    rope = config["rope_parameters"]
    whole = rope.get("full_attention", rope)
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rotated = int(width * whole.get("partial_rotary_factor", 1.0))
    writer.add_rope_freq_base(whole["rope_theta"])
    writer.add_rope_dimension_count(rotated)
    if "sliding_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    kind = whole["rope_type"]
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(whole["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(whole["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(whole["beta_fast"])
    if config["model_type"] == "phi3":
        writer.add_rope_scaling_orig_ctx_len(config.get("original_max_position_embeddings", 4096))
    if kind == "longrope":
        for part in ("long", "short"):
            writer.add_tensor(f"rope_factors_{part}.weight", np.array(whole[f"{part}_factor"], np.float32))
        ratio = config["max_position_embeddings"] / whole["original_max_position_embeddings"]
        writer.add_rope_scaling_attn_factors(
            np.sqrt(1 + np.log(ratio) / np.log(whole["original_max_position_embeddings"]))
        )
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(whole, rotated))


def llama3_divisors(rope, width):
    """`LlamaModel.generate_extra_tensors`."""
    wavelengths = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, width, 2, dtype=np.float32) / width)
    low, high, factor = (rope[key] for key in ("low_freq_factor", "high_freq_factor", "factor"))
    context, found = rope["original_max_position_embeddings"], []
    for wavelength in wavelengths:
        smooth = (context / wavelength - low) / (high - low)
        between = 1 / ((1 - smooth) / factor + smooth)
        found.append(1 if wavelength < context / high else factor if wavelength > context / low else between)
    return np.array(found, np.float32)


def add_settings(writer, config):
    """Sizes and numbers of the computation."""
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    further = {
        "attention_multiplier": writer.add_attention_scale,
        "embedding_multiplier": writer.add_embedding_scale,
        "residual_multiplier": writer.add_residual_scale,
        "logits_scaling": writer.add_logit_scale,
        "attn_logit_softcapping": writer.add_attn_logit_softcapping,
        "final_logit_softcapping": writer.add_final_logit_softcapping,
        "num_local_experts": writer.add_expert_count,
        "num_experts_per_tok": writer.add_expert_used_count,
        "moe_intermediate_size": writer.add_expert_feed_forward_length,
    }
    for key, add in further.items():
        if config.get(key) is not None:
            add(config[key])
    if config["model_type"] in ("gemma2", "gemma3_text", "phi3"):
        writer.add_sliding_window(config.get("sliding_window") or 0)


def write_gguf(path, config, tensors, kind=None, more=lambda writer: None):
    """Convert a checkpoint.

    Args:
        kind: of all matrices; None: as they are.
        more: adds to the file, by the library's writer.
    """
    writer = gguf.GGUFWriter(path, CONVERTED[config["model_type"]][0])
    writer.add_name("small")
    add_settings(writer, config)
    add_tensors(writer, config, tensors, kind)
    add_rope(writer, config)
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
