"""Networks: a dense decoder as pure functions of explicit parameters, masks and KV caches; loading and saving."""

from typing import TYPE_CHECKING

from jaxspec.lazy_names import lazy_names

if TYPE_CHECKING:
    from jaxspec.models.blocks import StepInput
    from jaxspec.models.config import MATRIX_KINDS, DecoderConfig
    from jaxspec.models.decoder import ForwardResult, Network, abstract_params, forward, forward_text, init_params
    from jaxspec.models.draft_head import TargetEnds, head_forward, head_logits, init_head_params, target_ends
    from jaxspec.models.embedded import embedded_directory, load_draft_head, load_model
    from jaxspec.models.head_files import LoadedHead, save_head
    from jaxspec.models.hf_export import save_directory
    from jaxspec.models.hf_load import LoadedModel, load_container, load_directory
    from jaxspec.models.kv_cache import CachedKV, KVCache, empty_cache, write_cache
    from jaxspec.models.rope import RopeScaling

__all__ = [
    "MATRIX_KINDS",
    "CachedKV",
    "DecoderConfig",
    "ForwardResult",
    "KVCache",
    "LoadedHead",
    "LoadedModel",
    "Network",
    "RopeScaling",
    "StepInput",
    "TargetEnds",
    "abstract_params",
    "embedded_directory",
    "empty_cache",
    "forward",
    "forward_text",
    "head_forward",
    "head_logits",
    "init_head_params",
    "init_params",
    "load_container",
    "load_directory",
    "load_draft_head",
    "load_model",
    "save_directory",
    "save_head",
    "target_ends",
    "write_cache",
]

lazy_names(__name__)
