"""Containers: checkpoints packed without loss, each tensor coded, and the draft's bits apart from the target's."""

from jaxspec.formats.container.codec import Chunk, Codec, CodecError, Part, Selection
from jaxspec.formats.container.layout import SUFFIX, VERSION, Section
from jaxspec.formats.container.opened import CODECS, Container, codec_of, drafted_bytes, packed_form
from jaxspec.formats.container.packing import (
    DraftSplit,
    Packed,
    check_container_output,
    default_container,
    default_folder,
    pack,
    unpack,
)
from jaxspec.formats.container.source import (
    NETWORK_FILES,
    WEIGHTS_SUFFIX,
    Checkpoint,
    SafetensorsFile,
    files_beside,
    network_files,
    open_checkpoint,
    open_weights,
    weight_files,
    weight_notes,
)
from jaxspec.formats.container.tensors import StoredTensor, TensorForm, Whole

__all__ = [
    "CODECS",
    "NETWORK_FILES",
    "SUFFIX",
    "VERSION",
    "WEIGHTS_SUFFIX",
    "Checkpoint",
    "Chunk",
    "Codec",
    "CodecError",
    "Container",
    "DraftSplit",
    "Packed",
    "Part",
    "SafetensorsFile",
    "Section",
    "Selection",
    "StoredTensor",
    "TensorForm",
    "Whole",
    "check_container_output",
    "codec_of",
    "default_container",
    "default_folder",
    "drafted_bytes",
    "files_beside",
    "network_files",
    "open_checkpoint",
    "open_weights",
    "pack",
    "packed_form",
    "unpack",
    "weight_files",
    "weight_notes",
]
