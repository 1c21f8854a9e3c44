"""Text for calibration and for held-out prompts: the committed snapshot, or a user's files."""

from jaxspec.text.documents import Document, Encoder, check_text
from jaxspec.text.prompt_set import PromptSet, num_within, read_prompts
from jaxspec.text.windows import TextSplit, load_text, prompt_starts, windows, windows_between, without_beginning

__all__ = [
    "Document",
    "Encoder",
    "PromptSet",
    "TextSplit",
    "check_text",
    "load_text",
    "num_within",
    "prompt_starts",
    "read_prompts",
    "windows",
    "windows_between",
    "without_beginning",
]
