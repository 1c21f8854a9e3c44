"""Problems of a task as a network sees them: prompts as tokens, where an answer ends, and which answers are right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Int

from jaxspec.errors import InputError
from jaxspec.models.tokenizer import Tokenizer
from jaxspec.scaling.tasks.arithmetic import END, STEP_END, Problem, answer_of, problems
from jaxspec.scaling.tasks.python import function_of, function_prompts
from jaxspec.scaling.verifiers import compiles, doctests_hold, parses
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.text import TextSplit

__all__ = ["NO_ANSWER", "Problems", "make_problems"]

#: Stands for the answer of a sample that has none; all answers are 0 or more.
NO_ANSWER = -1

#: Bytes after which a step of a function ends, for beams.
_LINE_END = b"\n"

_CHECKS = {"parses": parses, "compiles": compiles}


class Problems(Protocol):
    """Problems of one task; completions are bytes, one list for each problem."""

    @property
    def prompts(self) -> Sequence[bytes]:
        """What the network is given."""
        ...

    @property
    def step_end(self) -> bytes:
        """Each byte ends a step of an answer."""
        ...

    @property
    def end(self) -> bytes:
        """Each byte ends an answer; empty where `answer_bytes` alone tells the end."""
        ...

    def answer_bytes(self, problem: int, completion: bytes) -> int | None:
        """Bytes of a completion up to where its end is seen; None where it has no end."""
        ...

    def right(
        self, number: Sequence[int], completions: Sequence[Sequence[bytes]]
    ) -> Bool[np.ndarray, "problem sample"]:
        """Which completions are right; `number` says of which problems they are."""
        ...

    def answers(self, problem: int, completions: Sequence[bytes]) -> Int[np.ndarray, " sample"]:
        """Answers as numbers, `NO_ANSWER` where there is none."""
        ...

    def right_answer(self, problem: int) -> int:
        """The right one as a number; `NO_ANSWER` where many are."""
        ...


@dataclasses.dataclass(frozen=True)
class PythonProblems:
    """Functions whose bodies are to be written; right where the whole function passes a check."""

    prompts: Sequence[bytes]
    check: Callable[..., np.ndarray]
    step_end: bytes = _LINE_END
    end: bytes = b""

    def answer_bytes(self, problem: int, completion: bytes) -> int | None:
        """See `Problems`: the first byte behind the function belongs to it, since it shows the end."""
        prompt = self.prompts[problem]
        whole = function_of(prompt, completion)
        # The function is the head and a beginning of the completion; the byte behind that shows that it is over.
        return None if whole is None else len(whole) - _head_bytes(prompt) + 1

    def right(
        self, number: Sequence[int], completions: Sequence[Sequence[bytes]]
    ) -> Bool[np.ndarray, "problem sample"]:
        """See `Problems`; generated code runs isolated from this machine, if at all."""
        functions = [[function_of(self.prompts[i], text) for text in row] for i, row in zip(number, completions)]
        found = np.zeros((len(functions), max(map(len, functions), default=0)), bool)
        places = [(i, j) for i, row in enumerate(functions) for j, whole in enumerate(row) if whole is not None]
        if places:
            texts = [str(functions[i][j] or b"", "utf-8", "replace") for i, j in places]
            found[tuple(np.transpose(places))] = self.check(texts) > 0
        return found

    def answers(self, problem: int, completions: Sequence[bytes]) -> Int[np.ndarray, " sample"]:
        """See `Problems`: none, functions are not counted."""
        return np.full(len(completions), NO_ANSWER)

    def right_answer(self, problem: int) -> int:
        """See `Problems`."""
        return NO_ANSWER


@dataclasses.dataclass(frozen=True)
class ArithmeticProblems:
    """Sums that are worked out in steps; right where the last step is the value."""

    problems: Sequence[Problem]
    step_end: bytes = STEP_END
    end: bytes = END

    @property
    def prompts(self) -> Sequence[bytes]:
        """See `Problems`."""
        return [problem.text for problem in self.problems]

    def answer_bytes(self, problem: int, completion: bytes) -> int | None:
        """See `Problems`."""
        place = completion.find(self.end)
        return None if place < 0 else place + len(self.end)

    def right(
        self, number: Sequence[int], completions: Sequence[Sequence[bytes]]
    ) -> Bool[np.ndarray, "problem sample"]:
        """See `Problems`."""
        rows = [self.answers(i, row) == self.right_answer(i) for i, row in zip(number, completions)]
        return np.stack(rows) if rows else np.zeros((0, 0), bool)

    def answers(self, problem: int, completions: Sequence[bytes]) -> Int[np.ndarray, " sample"]:
        """See `Problems`."""
        found = [answer_of(completion[: self.answer_bytes(problem, completion)]) for completion in completions]
        return np.array([NO_ANSWER if value is None else value for value in found])

    def right_answer(self, problem: int) -> int:
        """See `Problems`."""
        return self.problems[problem].value


def _head_bytes(prompt: bytes) -> int:
    """Bytes of the function's head at the end of a prompt."""
    body = b" \n"
    whole = function_of(prompt, body + b"x")
    assert whole is not None
    return len(whole) - len(body)


def make_problems(config: ScaleConfig, text: TextSplit | None, tokenizer: Tokenizer | None) -> Problems:
    """The problems that a configuration names, the same for all networks.

    Args:
        text, tokenizer: where functions come from; None for arithmetic.
    Raises:
        InputError: the text has fewer than two functions.
    """
    if config.task == "arithmetic":
        return ArithmeticProblems(problems(config.prompts, seed=config.seed))
    assert text is not None
    assert tokenizer is not None
    ends = (*text.held_out_starts[1:], len(text.held_out))
    documents = [tokenizer.decode(text.held_out[a:b]).encode() for a, b in zip(text.held_out_starts, ends)]
    # A head stands at the beginning of a line, also of a document's first one.
    found = function_prompts(b"\0\n".join(documents), config.prompts, context=config.prompt_bytes, seed=config.seed)
    if len(found) < 2:
        raise InputError(
            f"text {config.text!r} has {len(found)} functions at the beginning of a line in its second half; give Python with "
            "two or more"
        )
    # Nothing of the document before; prompts of one length are compiled once.
    prompts = [prompt[prompt.rfind(b"\0") + 1 :].removeprefix(b"\n") for prompt in found]
    cut = [prompt[-max(config.prompt_bytes, _head_bytes(prompt)) :] for prompt in prompts]
    return PythonProblems(cut, _CHECKS.get(config.check, partial(doctests_hold, unsafe=config.unsafe_run_code)))
