"""Text for calibration and for held-out prompts: the committed snapshot, or a user's file."""

from jaxspec.text.windows import TextSplit, load_text, prompt_starts, windows

__all__ = ["TextSplit", "load_text", "prompt_starts", "windows"]
