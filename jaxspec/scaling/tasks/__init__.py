"""Tasks whose answers can be checked: arithmetic in steps, and Python that must parse, compile or pass its doctests."""

from jaxspec.scaling.tasks.arithmetic import Problem, answer_of, problems
from jaxspec.scaling.tasks.python import function_of, function_prompts

__all__ = ["Problem", "answer_of", "function_of", "function_prompts", "problems"]
