"""Flags and settings with which inference engines speculate: the draft, and how many tokens it drafts at which batch.

Source: the engines' documentation in 2026: vLLM 0.25 (dynamic speculative decoding), SGLang (speculative decoding), llama.cpp
(docs/speculative.md).
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["SERVED_DRAFTS", "Engine", "Range", "ServedDraft", "engines_for"]

#: Kinds of draft that engines know: a network, a lookup in the text, EAGLE heads, a network's own multi-token head.
SERVED_DRAFTS = ("network", "ngram", "eagle", "eagle3", "mtp")


@dataclasses.dataclass(frozen=True)
class ServedDraft:
    """What drafts: one of `SERVED_DRAFTS`, and the path or name of its weights; "" where there are none of its own."""

    kind: str
    weights: str = ""


@dataclasses.dataclass(frozen=True)
class Range:
    """Batches from `first` to `last`, both included, and the tokens drafted per cycle there; 0: do not speculate."""

    first: int
    last: int
    draft_length: int


@dataclasses.dataclass(frozen=True)
class Engine:
    """How one engine takes a draft.

    Attributes:
        title: of the engine.
        versions: for which the settings hold.
        file: name of the file with them, and its `content`.
        shown: how they are given to the engine, as Markdown; `language` of it.
        note: what else there is to know, in a sentence.
    """

    title: str
    versions: str
    file: str
    content: str
    language: str
    shown: str
    note: str = ""


def engines_for(
    target: str, draft: ServedDraft, draft_length: int, *, tokenizer: bool = True, schedule: Sequence[Range] = ()
) -> list[Engine]:
    """Settings of all engines that know the kind of draft.

    Args:
        target: path or name of the target's weights.
        draft_length: tokens drafted per cycle, >= 1, where an engine drafts as many at every batch.
        tokenizer: whether the target's directory has a tokenizer's files.
        schedule: draft length by batch, for engines that change it; none: `draft_length` everywhere.
    """
    makers: tuple[Callable[..., Engine | None], ...] = (_transformers, _vllm, _sglang, _llama_cpp)
    found = [make(target, draft, draft_length, tokenizer=tokenizer, schedule=tuple(schedule)) for make in makers]
    return [engine for engine in found if engine is not None]


def _missing(tokenizer: bool) -> str:
    return "" if tokenizer else " This network has no tokenizer files: "


def _skipped(tokenizer: bool) -> str:
    missing = _missing(tokenizer)
    return missing and f"{missing}add --skip-tokenizer-init and send token ids."


def _own_cache(draft: ServedDraft) -> str:
    return "The draft has a KV cache of its own, of the target's size." if draft.kind == "network" else ""


def _transformers(target: str, draft: ServedDraft, length: int, **_: Any) -> Engine | None:
    if draft.kind != "network":
        return None
    script = _TRANSFORMERS.format(target=target, draft=draft.weights, length=length)
    return Engine(
        "transformers",
        "4.46 and later",
        *("with_transformers.py", script, "python", script),
        "With these three settings exactly so many tokens are drafted; by itself it stops where the draft is unsure.",
    )


def _vllm(
    target: str, draft: ServedDraft, length: int, *, tokenizer: bool, schedule: tuple[Range, ...]
) -> Engine | None:
    settings: dict[str, Any] = {"method": "draft_model" if draft.kind == "network" else draft.kind}
    if draft.weights:
        settings["model"] = draft.weights
    changes = len({each.draft_length for each in schedule}) > 1
    settings["num_speculative_tokens"] = max(each.draft_length for each in schedule) if changes else length
    versions, note = "0.15 and later; 0.13 refuses draft models", _own_cache(draft)
    if changes:
        # Inclusive ends; 0 drafts nothing.
        settings["num_speculative_tokens_per_batch_size"] = [
            [each.first, each.last, each.draft_length] for each in schedule
        ]
        versions = "0.25 and later"
        note = f"{note} Draft lengths by batch do not work with --data-parallel-size above 1.".strip()
    text = json.dumps(settings)
    serve = _command("vllm serve", [target], ["--speculative-config", text])
    return Engine("vLLM", versions, *("vllm.json", f"{text}\n", "bash", serve), note + _skipped(tokenizer))


def _sglang(target: str, draft: ServedDraft, length: int, *, tokenizer: bool, **_: Any) -> Engine | None:
    # A network's own head is EAGLE's algorithm there, without weights beside the target's.
    algorithm = {"network": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "EAGLE", "ngram": "NGRAM"}
    lines: list[list[str | int]] = [["--model-path", target, "--speculative-algorithm", algorithm[draft.kind]]]
    if draft.weights:
        lines.append(["--speculative-draft-model-path", draft.weights])
    if draft.kind != "ngram":
        lines.append(["--speculative-num-steps", length, "--speculative-eagle-topk", 1])
    lines.append(["--speculative-num-draft-tokens", length + 1])
    text = _command("python -m sglang.launch_server", *lines)
    note = "The draft tokens that it counts include the root." + _skipped(tokenizer)
    return Engine("SGLang", "0.5", *("sglang.txt", f"{text}\n", "bash", text), note)


def _llama_cpp(target: str, draft: ServedDraft, length: int, *, tokenizer: bool, **_: Any) -> Engine | None:
    kinds = {"network": "draft-simple", "eagle3": "draft-eagle3", "mtp": "draft-mtp", "ngram": "ngram-simple"}
    if draft.kind not in kinds:
        return None
    convert = "python convert_hf_to_gguf.py"
    commands = [_command(convert, [target, "--outtype", "bf16", "--outfile", "target.gguf"])]
    files = ["--model", "target.gguf"]
    if draft.weights:
        # A head is converted with the sizes of its target at hand.
        beside = ["--target-model-dir", target] if draft.kind == "eagle3" else []
        commands.append(_command(convert, [draft.weights, *beside, "--outtype", "bf16", "--outfile", "draft.gguf"]))
        files += ["--model-draft", "draft.gguf"]
    limits: list[str | int] = ["--spec-draft-n-max", length, "--spec-draft-n-min", 0, "--spec-draft-p-min", 0]
    if draft.kind == "ngram":
        limits = ["--spec-draft-n-max", length, "--spec-draft-n-min", 0]
    commands.append(_command("llama-server", [*files, "--spec-type", kinds[draft.kind]], limits))
    text, missing = "\n".join(commands), _missing(tokenizer)
    note = "Earlier builds take --draft-max, --draft-min and --draft-p-min, and no --spec-type."
    note += missing and f"{missing}the conversion needs them."
    return Engine("llama.cpp", "builds since May 2026", *("llama_cpp.txt", f"{text}\n", "bash", text), note)


def _command(program: str, *lines: Sequence[str | int]) -> str:
    """A shell command over several lines."""
    return " \\\n    ".join([program, *(shlex.join(map(str, words)) for words in lines)])


_TRANSFORMERS = """from transformers import AutoModelForCausalLM

target = AutoModelForCausalLM.from_pretrained({target!r}, dtype="auto")
draft = AutoModelForCausalLM.from_pretrained({draft!r}, dtype="auto")
draft.generation_config.num_assistant_tokens = {length}
draft.generation_config.num_assistant_tokens_schedule = "constant"
draft.generation_config.assistant_confidence_threshold = 0.0
# Then, with the target's tokenizer:
# target.generate(**tokenizer(text, return_tensors="pt"), assistant_model=draft, do_sample=False)
"""
