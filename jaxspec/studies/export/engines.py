"""Flags and settings with which inference engines take an exported draft."""

from __future__ import annotations

import dataclasses
import json
import shlex

__all__ = ["Engine", "engines_for"]


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


def engines_for(target: str, draft: str, draft_length: int, *, tokenizer: bool) -> list[Engine]:
    """Settings of all engines.

    Args:
        target: path of the target's weights.
        draft: path of the exported directory.
        draft_length: tokens drafted per cycle.
        tokenizer: whether the directory has a tokenizer's files.
    """
    missing = "" if tokenizer else " This network has no tokenizer files: "
    skipped = missing and f"{missing}add --skip-tokenizer-init and send token ids."
    script = _TRANSFORMERS.format(target=target, draft=draft, length=draft_length)
    vllm = json.dumps({"method": "draft_model", "model": draft, "num_speculative_tokens": draft_length})
    serve = _command("vllm serve", [target], ["--speculative-config", vllm])
    sglang = _command(
        "python -m sglang.launch_server",
        ["--model-path", target, "--speculative-algorithm", "STANDALONE"],
        ["--speculative-draft-model-path", draft],
        ["--speculative-num-steps", draft_length, "--speculative-eagle-topk", 1],
        ["--speculative-num-draft-tokens", draft_length + 1],
    )
    llama_cpp = "\n".join(
        [
            _command("python convert_hf_to_gguf.py", [target, "--outtype", "bf16", "--outfile", "target.gguf"]),
            _command("python convert_hf_to_gguf.py", [draft, "--outtype", "bf16", "--outfile", "draft.gguf"]),
            _command(
                "llama-server",
                ["--model", "target.gguf", "--model-draft", "draft.gguf", "--spec-type", "draft-simple"],
                ["--spec-draft-n-max", draft_length, "--spec-draft-n-min", 0, "--spec-draft-p-min", 0],
            ),
        ]
    )
    return [
        Engine(
            "transformers",
            "4.46 and later",
            *("with_transformers.py", script, "python", script),
            "With these three settings exactly so many tokens are drafted; by itself it stops where the draft is unsure.",
        ),
        Engine(
            "vLLM",
            "0.15 and later; 0.13 refuses draft models",
            *("vllm.json", f"{vllm}\n", "bash", serve),
            "The draft has a KV cache of its own, of the target's size." + skipped,
        ),
        Engine(
            "SGLang",
            "0.5",
            *("sglang.txt", f"{sglang}\n", "bash", sglang),
            "The draft tokens that it counts include the root." + skipped,
        ),
        Engine(
            "llama.cpp",
            "builds since May 2026",
            *("llama_cpp.txt", f"{llama_cpp}\n", "bash", llama_cpp),
            "Earlier builds take --draft-max, --draft-min and --draft-p-min, and no --spec-type."
            + (missing and f"{missing}the conversion needs them."),
        ),
    ]


def _command(program: str, *lines: list[str | int]) -> str:
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
