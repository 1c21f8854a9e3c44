"""llama.cpp's clock beside a prediction: `python -m experiments.llama_cpp_clock EXPORT [--json FILE]`.

EXPORT is a folder of `jaxspec export MODEL`: a target, its low-bit copy and the acceptance that jaxspec measured of the pair.
Three parts of a cycle are timed without the pair: a step of the target alone, one of the draft alone, and a verification, which
is what is left of a cycle that the target drafts for itself. So a cycle of the pair is predicted as draft steps and one
verification, its tokens are jaxspec's, and both together are tokens per second; then the pair runs. All ways take turns on each
prompt. Needs xllamacpp, which is llama.cpp: `pip install --no-deps xllamacpp`.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.command_line import add_outputs, run_and_write
from jaxspec.errors import InputError
from jaxspec.partial_files import read_json
from jaxspec.runs import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.settings import CommonConfig
from jaxspec.studies.measured.checking import check_inputs

#: Tokens that the caches have room for.
_CONTEXT = 1024


def server(target: Path, draft: Path | None, draft_length: int, threads: int) -> Any:
    """llama.cpp with a network, and a draft of exactly so many tokens beside it."""
    try:
        engine: Any = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise InputError("xllamacpp, which is llama.cpp, is not installed: pip install --no-deps xllamacpp") from error
    params = engine.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.verbosity = str(target), _CONTEXT, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    if draft is not None:
        params.speculative.types = [engine.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        own = params.speculative.draft
        own.mparams.path, own.n_max, own.n_min, own.p_min = str(draft), draft_length, 0, 0.0
    return engine.Server(params)


def timed(servers: Mapping[str, Any], prompts: Sequence[np.ndarray], tokens: int) -> dict[str, list[dict[str, float]]]:
    """Timings of each way on each prompt, in turns; the first prompt warms up and does not count."""
    timings: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    asked = {"n_predict": tokens, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    with Reporter().bar("decoding with llama.cpp", len(prompts)) as bar:
        for prompt in prompts:
            for name, each in servers.items():
                timings[name].append(each.handle_completions(asked | {"prompt": prompt.tolist()})["timings"])
            bar.advance()
    return {name: rows[1:] for name, rows in timings.items()}


def cycles_of(timing: Mapping[str, float], draft_length: int) -> float:
    """Cycles of a text: what was not drafted and accepted came one a cycle."""
    return timing["predicted_n"] - timing["draft_n_accepted"]


def compare(folder: Path, *, prompts: int, tokens: int, threads: int) -> dict[str, Any]:
    """Parts, prediction and clock.

    Raises:
        InputError: no export of a network and its copy.
    """
    try:
        exported = read_json(folder / "jaxspec_export.json")
        model, length = str(exported["target"]), int(exported["draft_length"])
        expected = float(exported["alone"]["tokens_per_cycle"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{str(folder)!r} is not an export of a network with its low-bit copy; make one with jaxspec export MODEL --out DIR"
        ) from error
    target, draft = folder / "target.gguf", folder / "draft.gguf"
    texts = check_inputs(
        CommonConfig(model=model, architecture="own", prompts=prompts + 1, output_tokens=tokens)
    ).prompts
    servers = {
        "target": server(target, None, length, threads),
        "draft": server(draft, None, length, threads),
        "itself": server(target, target, length, threads),
        "pair": server(target, draft, length, threads),
    }
    rows = timed(servers, texts, tokens)
    seconds = lambda name, per: statistics.median(row["predicted_ms"] / 1e3 / per(row) for row in rows[name])
    step_s, draft_s = (seconds(name, lambda row: row["predicted_n"]) for name in ("target", "draft"))
    verify_s = seconds("itself", lambda row: cycles_of(row, length)) - length * step_s
    cycle_s = seconds("pair", lambda row: cycles_of(row, length))
    counted = sum(row["predicted_n"] for row in rows["pair"]) / sum(cycles_of(row, length) for row in rows["pair"])
    predicted_s = length * draft_s + verify_s
    return {
        "model": model,
        "draft_length": length,
        "threads": threads,
        "prompts": prompts,
        "output_tokens": tokens,
        "target_step_s": step_s,
        "draft_step_s": draft_s,
        "verification_s": verify_s,
        "cycle_s_predicted": predicted_s,
        "cycle_s_measured": cycle_s,
        "tokens_per_cycle_predicted": expected,
        "tokens_per_cycle_counted": counted,
        "tokens_per_s_without_draft": 1 / step_s,
        "tokens_per_s_predicted": expected / predicted_s,
        "tokens_per_s_measured": statistics.median(
            row["predicted_n"] / row["predicted_ms"] * 1e3 for row in rows["pair"]
        ),
        "status": "parts, counts and clock measured; predicted as named",
        "versions": versions(),
    }


def show(result: dict[str, Any]) -> None:
    """Print a comparison."""
    times = {
        "step of the target": "target_step_s",
        "step of the draft": "draft_step_s",
        "verification": "verification_s",
    }
    print(
        f"{result['model']}, {result['draft_length']} drafted tokens, {result['threads']} threads, {result['prompts']} prompts"
    )
    for words, name in times.items():
        print(f"{words}: {1e3 * result[name]:.2f} ms (measured)")
    print(
        f"cycle: predicted {1e3 * result['cycle_s_predicted']:.2f} ms, measured {1e3 * result['cycle_s_measured']:.2f} ms"
    )
    expected, counted = result["tokens_per_cycle_predicted"], result["tokens_per_cycle_counted"]
    print(f"tokens per cycle: predicted {expected:.2f}, counted {counted:.2f}")
    error = result["tokens_per_s_predicted"] / result["tokens_per_s_measured"] - 1
    print(
        f"tokens/s: {result['tokens_per_s_without_draft']:.1f} without a draft, with it {result['tokens_per_s_measured']:.1f} "
        f"(predicted {result['tokens_per_s_predicted']:.1f}, {100 * error:+.1f} %)"
    )


def main() -> None:
    """Time and compare."""
    parser = argparse.ArgumentParser(prog="python -m experiments.llama_cpp_clock", description=__doc__)
    parser.add_argument("export", type=Path, help="folder of jaxspec export MODEL")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=48, help="of each answer")
    parser.add_argument("--threads", type=int, default=1)
    add_outputs(parser, plots=False)
    args = parser.parse_args()
    how = {"prompts": args.prompts, "tokens": args.tokens, "threads": args.threads}
    run_and_write(parser, args, lambda: compare(args.export, **how), show)


if __name__ == "__main__":
    main()
