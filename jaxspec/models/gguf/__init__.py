"""Networks in GGUF files, as llama.cpp, Ollama and LM Studio keep them, read as checkpoints of Hugging Face."""

from jaxspec.models.gguf.files import GgufFile, gguf_in, is_gguf, open_gguf, split_files
from jaxspec.models.gguf.settings import ARCHITECTURES
from jaxspec.models.gguf.tokenizers import check_tokenizer

__all__ = ["ARCHITECTURES", "GgufFile", "check_tokenizer", "gguf_in", "is_gguf", "open_gguf", "split_files"]
