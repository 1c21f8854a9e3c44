"""Accuracy of the arithmetic network against the budget of samples: `python -m experiments.arithmetic_scaling [--json FILE]`.

Some minutes on two cores. On held-out problems: how often one of N samples is right (pass@N, without bias), the answer that
most give, the answer that the judge likes best, and the best beam of a search of N branches by the judge's process scores,
with 95 % bootstrap intervals over problems.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.command_line import add_outputs, carry_out
from experiments.quantization_quality.intervals import bootstrap
from experiments.train_arithmetic.train import ANSWER, HELD_OUT
from jaxspec.models.embedded import ARITHMETIC_NAME, JUDGE_NAME, load_model
from jaxspec.models.stored import as_computed
from jaxspec.report.terminal import Table, new_console
from jaxspec.runs.progress import Reporter
from jaxspec.scaling import BeamSearch, beam_search, best_of_n_rate, majority_rate, pass_at_n, sample_continuations
from jaxspec.scaling.tasks.arithmetic import END, STEP_END, answer_of, problems
from jaxspec.scaling.verifiers.judge import Judge
from jaxspec.tuning import target_params

#: Budgets, each with the beams and copies of a beam that make it up.
BUDGETS = {1: (1, 1), 4: (2, 2), 16: (4, 4)}

#: Most bytes of a step: what is left of six numbers, and its end.
_STEP_TOKENS = 24

_METHODS = {
    "pass": "any right",
    "majority": "majority",
    "judge": "best by judge",
    "beam": "beam search",
}


def measure(count: int, terms: tuple[int, int], seed: int, reporter: Reporter) -> dict[str, Any]:
    """Shares of solved problems by method and budget.

    Args:
        count: of problems. terms: fewest and most numbers of a problem.
        seed: of the samples.
    """
    solver, judging = (load_model(name) for name in (ARITHMETIC_NAME, JUDGE_NAME))
    params, judge_params = (as_computed(target_params(model.params)) for model in (solver, judging))
    judge = Judge(judge_params, judging.config, (STEP_END[0], END[0]))
    end, step_end = (np.frombuffer(token, np.uint8).astype(np.int32) for token in (END, STEP_END))
    key = jax.random.key(seed)
    most, drawn = max(BUDGETS), problems(count, seed=HELD_OUT, terms=terms)
    answers, scores = np.zeros((count, most), np.int64), np.zeros((count, most))
    beams = {n: np.zeros(count) for n in BUDGETS}
    with reporter.bar("problems", count) as bar:
        for number, problem in enumerate(drawn):
            prompt = np.frombuffer(problem.text, np.uint8).astype(np.int32)
            own = {"prompt_id": number, "seed": key, "stop": end}
            samples = sample_continuations(
                params, solver.config, prompt, samples=most, num_tokens=ANSWER, **own
            ).texts()
            # No answer is no vote.
            answers[number] = [-1 if (value := _answer(text)) is None else value for text in samples]
            scores[number] = judge(prompt, samples)
            for n, (kept, copies) in BUDGETS.items():
                search = BeamSearch(kept, copies, terms[1], _STEP_TOKENS, ANSWER)
                score = lambda found, prompt=prompt: judge(prompt, found.texts())
                found = beam_search(params, solver.config, prompt, score, search, step_end=step_end, **own)
                beams[n][number] = _answer(found.samples.texts()[0]) == problem.value
            bar.advance()
    values = np.array([problem.value for problem in drawn])
    right = answers == values[:, None]
    rate: dict[str, Callable[[int], np.ndarray]] = {
        "pass": lambda n: pass_at_n(right, n),
        "majority": lambda n: majority_rate(answers, values, n, seed=seed),
        "judge": lambda n: best_of_n_rate(scores, right, n),
        "beam": lambda n: beams[n],
    }
    ones, alone = np.ones(count), rate["pass"](1)
    rows = [
        {
            "method": method,
            "samples": n,
            "accuracy": bootstrap(np.divide, rate[method](n), ones)._asdict(),
            "gain_over_one": bootstrap(np.divide, rate[method](n) - alone, ones)._asdict(),
        }
        for method in _METHODS
        for n in BUDGETS
    ]
    return {"problems": count, "terms": list(terms), "seed": seed, "rows": rows, "status": "measured"}


def _answer(text: np.ndarray) -> int | None:
    return answer_of(bytes(text.astype(np.uint8)))


def show(result: dict[str, Any]) -> None:
    """A table on standard output."""
    few, most = result["terms"]
    table = Table(title=f"{result['problems']} problems of {few} to {most} numbers solved (measured; 95 % intervals)")
    table.add_column("method")
    for n in BUDGETS:
        table.add_column(f"N = {n}", justify="right")
    for method, title in _METHODS.items():
        found = [row["accuracy"] for row in result["rows"] if row["method"] == method]
        table.add_row(title, *(f"{one['ratio']:.1%} ({one['low']:.1%} to {one['high']:.1%})" for one in found))
    console = new_console()
    console.print(table)
    for row in result["rows"]:
        if row["samples"] == max(BUDGETS):
            gain = row["gain_over_one"]
            verdict = "significant" if gain["low"] > 0 else "not significant"
            span = f"{gain['ratio']:+.1%} ({gain['low']:+.1%} to {gain['high']:+.1%})"
            console.print(f"  {_METHODS[row['method']]}, N = {row['samples']} against one sample: {span}, {verdict}")


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.arithmetic_scaling", description=__doc__)
    parser.add_argument("--problems", type=int, default=200, help="held out; default %(default)s")
    parser.add_argument("--terms", type=int, nargs=2, default=(3, 6), help="fewest and most numbers; default 3 6")
    parser.add_argument("--seed", type=int, default=0, help="of the samples")
    add_outputs(parser, plots=False)
    args = parser.parse_args()
    few, most = args.terms
    if args.problems < 1 or not 2 <= few <= most <= 6:
        parser.error(f"--problems {args.problems} --terms {few} {most} came; give 1 or more problems of 2 to 6 numbers")
    carry_out(parser, args, lambda: measure(args.problems, (few, most), args.seed, Reporter()), show)


if __name__ == "__main__":
    main()
