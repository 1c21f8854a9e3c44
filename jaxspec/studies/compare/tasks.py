"""Problems whose answers can be checked, decoded greedily: the share that a network answers rightly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property

import numpy as np
from jaxtyping import Bool

from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import ARITHMETIC_NAME
from jaxspec.results import measured
from jaxspec.runs.stages import Arrays
from jaxspec.scaling.estimators import mean_and_error, rate_interval
from jaxspec.speculate.proof import continue_texts
from jaxspec.speculate.ragged import generated_tokens, padded
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.compare.config import NONE, CompareConfig
from jaxspec.studies.compare.result import TaskAccuracy
from jaxspec.studies.measured.checking import CheckedInputs
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.networks import Network, check_length, check_network
from jaxspec.studies.scale.problems import Problems, make_problems

__all__ = ["CheckedTask", "check_task", "task_accuracy"]


@dataclasses.dataclass(frozen=True, eq=False)
class CheckedTask:
    """Problems, and the network that reads them.

    Attributes:
        settings: of the problems, as `jaxspec scale` has them.
        reader: prompts to tokens and back; its weights are not asked for.
    """

    settings: ScaleConfig
    problems: Problems
    reader: Network

    @cached_property
    def _prompts(self) -> tuple[np.ndarray, np.ndarray]:
        return padded([self.reader.encoded(prompt) for prompt in self.problems.prompts])

    def answers(self, params: Params, config: DecoderConfig, advance: Callable[[], None]) -> list[list[bytes]]:
        """Of a network, one answer to each problem.

        Args:
            config: with the form in which the network keeps its KV cache.
            advance: called after each chunk of problems.
        """
        prompts, lengths = self._prompts
        most = self.settings.most_tokens
        found = continue_texts(
            params,
            config,
            prompts,
            num_tokens=most,
            decoding=GREEDY,
            seed=self.settings.seed,
            lengths=lengths,
            stop=self.reader.stop(self.problems).tolist(),
            advance=advance,
        )
        rows = generated_tokens(found["tokens"], lengths, found["generated"], most)
        return [[self._answer(number, row[row >= 0])] for number, row in enumerate(rows)]

    def right(self, answers: list[list[bytes]]) -> Arrays:
        """Which of these answers are right: `right`, " problem"."""
        return {"right": self.problems.right(range(len(answers)), answers)[:, 0]}

    def _answer(self, problem: int, tokens: np.ndarray) -> bytes:
        # What stands behind the end of an answer is no part of it; without an end, the whole is looked at.
        return self.reader.decoded(tokens[: self.reader.spent(self.problems, problem, tokens)])


def check_task(config: CompareConfig, checked: CheckedInputs) -> tuple[CheckedTask | None, str | None]:
    """The task of a run, and why there is none where nobody asked for one or for none.

    Raises:
        InputError: a task that was named, and the text or the network does not allow.
    """
    if config.task == NONE:
        return None, None
    task = config.task or ("arithmetic" if config.model == ARITHMETIC_NAME else "python")
    settings = ScaleConfig(model=(config.model,), task=task, prompts=config.problems, seed=config.seed)
    if task == "python":
        settings = dataclasses.replace(settings, text=config.text)
    try:
        problems = make_problems(settings, checked.text, checked.tokenizer)
        network = check_network(config.model, settings)
        check_length(network, settings, problems)
        return CheckedTask(settings, problems, network), None
    except InputError as error:
        if config.task is not None:
            raise
        return None, str(error)


def task_accuracy(right: Bool[np.ndarray, " problem"], plain: Bool[np.ndarray, " problem"]) -> TaskAccuracy:
    """Share of right answers with its 95 % interval, and how much that is above the 16-bit network's on the same problems.

    Args:
        right, plain: of two problems or more, of the network and of the 16-bit one.
    """
    share, of_plain = right.astype(np.float64), plain.astype(np.float64)
    low, high = rate_interval(share)
    return TaskAccuracy(
        accuracy=measured(float(share.mean())),
        low=measured(low),
        high=measured(high),
        change=measured(*mean_and_error(share - of_plain)),
    )
