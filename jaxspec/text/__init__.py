"""Text for calibration and for held-out prompts: the committed snapshot, or a user's file."""

from jaxspec.text.user_text import check_text
from jaxspec.text.windows import TextSplit, load_text, prompt_starts, windows

__all__ = ["TextSplit", "check_text", "load_text", "prompt_starts", "windows"]
