"""Tasks whose answers can be checked: sums in steps or in words, and Python that must parse, compile or pass its doctests."""

from jaxspec.scaling.tasks.arithmetic import Problem, answer_of, problems
from jaxspec.scaling.tasks.python import function_of, function_prompts
from jaxspec.scaling.tasks.word_problems import last_number, word_problems

__all__ = ["Problem", "answer_of", "function_of", "function_prompts", "last_number", "problems", "word_problems"]
