"""What `jaxspec scale` measures, stage by stage: samples with their scores and verdicts, beams, and acceptance of a draft."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Arrays, Stages
from jaxspec.scaling.branches import BeamSearch, Samples, beam_search, sample_continuations
from jaxspec.scaling.verifiers.judge import Judge
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.chunks import Prompts, chunk_size, padded
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import Decoding
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.inputs import NO_ANSWER, Network, Problems, load_judge

__all__ = ["ScaleStages", "beams_of"]

#: Problems of one stage: a killed run repeats so many at most.
_GROUP = 8


def beams_of(samples: int) -> tuple[int, int]:
    """Beams, and copies of each that grow, of a budget: as square as it divides."""
    beams = max(count for count in range(1, samples + 1) if samples % count == 0 and count * count <= samples)
    return beams, samples // beams


@dataclasses.dataclass(frozen=True, eq=False)
class ScaleStages:
    """Measuring of a run."""

    config: ScaleConfig
    problems: Problems
    networks: dict[str, Network]
    stages: Stages
    reporter: Reporter
    _found: dict[str, Arrays] = dataclasses.field(default_factory=dict)  # by stage

    @property
    def decoding(self) -> Decoding:
        """How samples are drawn."""
        config = self.config
        return Decoding(greedy=False, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p)

    @cached_property
    def judge(self) -> Judge:
        """The judge that the settings name."""
        assert self.config.judging is not None
        return load_judge(self.config.judging, self.problems)

    def samples(self, name: str) -> Arrays:
        """Of a network, all samples of all problems.

        Returns:
            "problem sample": `spent`, tokens up to the end of the answer; `ended`, whether it has one; `score`, NaN where it
            has none; `right`; `answer`.
        """
        return self._by_groups(
            f"samples/{self._place(name)}", f"sampling, {name}", lambda part: self._sampled(name, part)
        )

    def beams(self, name: str, samples: int) -> Arrays:
        """Of a network, one answer of a search with a budget for each problem.

        Returns:
            " problem": `right`; `passes` of the network; `tokens` that all branches generated; `rounds` of scores.
        """
        stage, what = f"beams/{self._place(name)}-{samples}", f"beams of {samples}, {name}"
        return self._by_groups(stage, what, lambda part: self._searched(name, samples, part))

    def drafted(self, name: str) -> Arrays:
        """Of a network, counts of decoding the problems with a chain of drafted tokens, as `Decoded` has them."""
        network, config = self.networks[name], self.config

        def compute() -> Arrays:
            prompts, lengths = padded([network.encoded(prompt) for prompt in self.problems.prompts])
            draft = network.drafted_by(config.draft, sharing=config.batch)
            at_once = chunk_size(len(prompts))
            with self.reporter.bar(f"decoding with {config.draft}, {name}", len(prompts), step=at_once) as bar:
                decoded = decode_chains(
                    network.params,
                    network.config,
                    draft,
                    Prompts(
                        prompts,
                        num_tokens=config.most_tokens,
                        decoding=self.decoding,
                        seed=config.seed,
                        lengths=lengths,
                        stop=network.stop(self.problems).tolist(),
                    ),
                    MAX_DRAFT_LENGTH,
                    advance=bar.advance,
                )
            return {field: decoded[field] for field in ("accepted_at", "ended_at", "cycles", "generated")}

        return self.stages.run(f"drafted/{self._place(name)}", compute)

    def _place(self, name: str) -> int:
        """Number of a network, for names of stages: its own name may be a path."""
        return list(self.networks).index(name)

    def _by_groups(self, stage: str, what: str, compute: Callable[[list[int]], Arrays]) -> Arrays:
        """A stage for every few problems, joined."""
        if stage in self._found:
            return self._found[stage]
        count = len(self.problems.prompts)
        groups = [list(range(first, min(first + _GROUP, count))) for first in range(0, count, _GROUP)]
        parts: list[Arrays] = []
        with self.reporter.bar(what, count) as bar:
            for part in groups:
                parts.append(self.stages.run(f"{stage}/{part[0]}", lambda part=part: compute(part)))
                bar.jump(part[-1] + 1, "")
        self._found[stage] = jax.tree.map(lambda *rows: np.concatenate(rows), *parts)
        return self._found[stage]

    def _sampled(self, name: str, part: list[int]) -> Arrays:
        network, most = self.networks[name], max(self.config.samples)
        shape = (len(part), most)
        arrays: Arrays = {
            "spent": np.zeros(shape, np.int32),
            "ended": np.zeros(shape, bool),
            "score": np.zeros(shape),
            "answer": np.full(shape, NO_ANSWER),
        }
        completions, stop = [], network.stop(self.problems)
        for row, problem in enumerate(part):
            samples = sample_continuations(
                network.params,
                network.config,
                network.encoded(self.problems.prompts[problem]),
                samples=most,
                num_tokens=self.config.most_tokens,
                seed=jax.random.key(self.config.seed),
                prompt_id=problem,
                decoding=self.decoding,
                stop=stop,
            )
            spent, ended = self._ends(network, problem, samples)
            texts = [network.decoded(text[:size]) for text, size in zip(samples.texts(), spent, strict=True)]
            arrays["spent"][row], arrays["ended"][row] = spent, ended
            arrays["score"][row] = np.where(ended, self._scores(problem, samples, spent, texts), np.nan)
            arrays["answer"][row] = self.problems.answers(problem, texts)
            completions.append(texts)
        return arrays | {"right": self._right(part, completions)}

    def _searched(self, name: str, samples: int, part: list[int]) -> Arrays:
        network, (beams, copies) = self.networks[name], beams_of(samples)
        most, numbers, answers = self.config.most_tokens, [], []
        ends, stop = tuple(network.tokens_with(self.problems.step_end).tolist()), network.stop(self.problems)
        search = BeamSearch(beams, copies, steps=most, step_tokens=most, num_tokens=most, step_end=ends)
        for problem in part:

            def score(samples: Samples, problem: int = problem) -> Float[np.ndarray, " branch"]:
                spent, _ = self._ends(network, problem, samples)
                texts = [network.decoded(text[:size]) for text, size in zip(samples.texts(), spent, strict=True)]
                return self._scores(problem, samples, spent, texts)

            result = beam_search(
                network.params,
                network.config,
                network.encoded(self.problems.prompts[problem]),
                score,
                search,
                seed=jax.random.key(self.config.seed),
                prompt_id=problem,
                decoding=self.decoding,
                stop=stop,
                done=lambda samples, problem=problem: self._ends(network, problem, samples)[1],
            )
            spent, ended = self._ends(network, problem, result.samples)
            # Beams come best first; one without an end is no answer.
            best = int(np.argmax(ended))
            answers.append([network.decoded(result.samples.texts()[best][: spent[best]])])
            numbers.append((result.passes, result.tokens, result.steps))
        passes, tokens, rounds = np.array(numbers, np.int64).T
        right = self._right(part, answers)[:, 0]
        return {"right": right, "passes": passes, "tokens": tokens, "rounds": rounds}

    def _right(self, part: list[int], answers: list[list[bytes]]) -> Bool[np.ndarray, "problem sample"]:
        return self.stages.processes.run_on_rank0(lambda: self.problems.right(part, answers))

    def _ends(
        self, network: Network, problem: int, samples: Samples
    ) -> tuple[Int[np.ndarray, " sample"], Bool[np.ndarray, " sample"]]:
        """Tokens of each sample up to the end of its answer, and whether it has one."""
        ends = [network.spent(self.problems, problem, text) for text in samples.texts()]
        spent = [length if end is None else end for end, length in zip(ends, samples.length, strict=True)]
        return np.array(spent, np.int32), np.array([end is not None for end in ends])

    def _scores(
        self, problem: int, samples: Samples, spent: Int[np.ndarray, " sample"], texts: list[bytes]
    ) -> Float[np.ndarray, " sample"]:
        if self.config.judging is None:
            return _likelihood(samples, spent)
        return self.stages.processes.run_on_rank0(lambda: self._judge_scores(problem, texts))

    def _judge_scores(self, problem: int, texts: list[bytes]) -> Float[np.ndarray, " sample"]:
        as_tokens = lambda text: np.frombuffer(text, np.uint8).astype(np.int32)
        return self.judge(as_tokens(self.problems.prompts[problem]), [as_tokens(text) for text in texts])


def _likelihood(samples: Samples, spent: Int[np.ndarray, " sample"]) -> Float[np.ndarray, " sample"]:
    """Mean log-probability of the tokens up to the end of the answer."""
    counted = np.arange(samples.log_prob.shape[1]) < spent[:, None]
    return np.sum(samples.log_prob * counted, axis=1, dtype=np.float64) / np.maximum(spent, 1)
