"""Flags and settings with which inference engines speculate: the draft, and how many tokens it drafts at which batch.

Source: the engines' documentation in 2026 (dynamic speculative decoding of vLLM, adaptive speculative decoding of SGLang,
docs/speculative.md of llama.cpp) and the arguments of vLLM 0.33, SGLang 0.5.23 and mlx-lm 0.32.2 in their packages.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hwmodels.catalog import Parallelism
from jaxspec.partial_files import GGUF_SUFFIX

__all__ = ["Engine", "Range", "ServedDraft", "ServedTree", "engines_for", "idle_draft_notes"]

#: Owner and name of a repository of Hugging Face.
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def shell_command(program: str, *lines: Sequence[str | int]) -> str:
    """A shell command over several lines."""
    return " \\\n    ".join([program, *(shlex.join(map(str, words)) for words in lines)])


def downloaded(weights: str, folder: str) -> tuple[list[str], str]:
    """Commands that bring weights here for programs that read folders alone, and the folder where they then lie.

    Args:
        weights: a path; or, where none is there, owner and name of a repository of Hugging Face.
        folder: for those of a repository.
    """
    if os.path.exists(weights) or not _REPOSITORY.fullmatch(weights):
        return [], weights
    return [shell_command("hf download", [weights, "--local-dir", folder])], folder


#: Kinds of draft that engines know: a network, a lookup in the text, EAGLE and Medusa heads, a network's own multi-token head,
#: a block drafter as DFlash is.
SERVED_DRAFTS = ("network", "ngram", "eagle", "eagle3", "medusa", "mtp", "block")


@dataclasses.dataclass(frozen=True)
class ServedDraft:
    """What drafts: one of `SERVED_DRAFTS`, and the path or name of its weights; "" where there are none of its own.

    Attributes:
        other_rows: whether a network's vocabulary is padded to other rows than the target's.
    """

    kind: str
    weights: str = ""
    other_rows: bool = False


@dataclasses.dataclass(frozen=True)
class Range:
    """Batches from `first` to `last`, both included, and the tokens drafted per cycle there; 0: do not speculate."""

    first: int
    last: int
    draft_length: int


@dataclasses.dataclass(frozen=True)
class ServedTree:
    """A tree of drafted tokens: how many, in how many draft steps, and the most children of a node."""

    nodes: int
    depth: int
    branching: int


@dataclasses.dataclass(frozen=True)
class Engine:
    """How one engine takes a draft.

    Attributes:
        title: of the engine.
        versions: for which the settings hold.
        file: name of the file with them, and its `content`.
        more_files: further ones that the settings name.
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
    more_files: Mapping[str, str] = dataclasses.field(default_factory=dict)


#: Heads that SGLang drafts with by its EAGLE algorithms, whose steps may follow the batch.
_ADAPTIVE = ("eagle", "eagle3", "mtp")


#: File of these steps.
_ADAPTIVE_FILE = "sglang_adaptive.json"


#: One device.
_ALONE = Parallelism()


@dataclasses.dataclass(frozen=True)
class Served:
    """What an engine is to serve.

    Attributes:
        target: path or name of the target's weights.
        draft: what drafts.
        draft_length: tokens drafted per cycle, >= 1, where an engine drafts as many at every batch.
        tokenizer: whether the target's directory has a tokenizer's files.
        schedule: draft length by batch, for engines that change it; none: `draft_length` everywhere.
        parallelism: of the target, and of a draft network, among devices.
        tree: drafted in place of a chain by engines that grow trees; None: chains everywhere.
        float32: weights are in float32 and mean what they do there alone; engines round them to 16 bits by themselves.
        quantized: the target's release is, so that no 16-bit type is its own.
    """

    target: str
    draft: ServedDraft
    draft_length: int
    tokenizer: bool = True
    schedule: Sequence[Range] = ()
    parallelism: Parallelism = _ALONE
    tree: ServedTree | None = None
    float32: bool = False
    quantized: bool = False

    @property
    def lengths(self) -> list[int]:
        """Of the schedule."""
        return [each.draft_length for each in self.schedule]

    @property
    def changes(self) -> bool:
        """Whether the draft length depends on the batch."""
        return len(set(self.lengths)) > 1

    @property
    def dtype(self) -> list[list[str | int]]:
        """Flag without which vLLM and SGLang round weights in float32 to 16 bits."""
        return [["--dtype", "float32"]] if self.float32 else []


def engines_for(target: str, draft: ServedDraft, draft_length: int, *, mlx: bool = False, **more: Any) -> list[Engine]:
    """Settings of all engines that know the kind of draft.

    Args:
        target, draft, draft_length, more: see `Served`.
        mlx: settings of MLX too.
    """
    if draft.kind not in SERVED_DRAFTS:
        return []
    makers: tuple[Callable[[Served], Engine | None], ...] = (_transformers, _vllm, _sglang, _llama_cpp)
    makers += (_mlx,) if mlx else ()
    makers = (_llama_cpp,) if target.endswith(GGUF_SUFFIX) else makers
    served = Served(target, draft, draft_length, **more)
    return [engine for make in makers if (engine := make(served)) is not None]


def _missing(tokenizer: bool) -> str:
    return "" if tokenizer else " This network has no tokenizer files: "


def _skipped(tokenizer: bool) -> str:
    missing = _missing(tokenizer)
    return missing and f"{missing}add --skip-tokenizer-init and send token ids."


def _transformers(served: Served) -> Engine | None:
    draft = served.draft
    if draft.kind != "network":
        return None
    script = _TRANSFORMERS.format(target=served.target, draft=draft.weights, length=served.draft_length)
    return Engine(
        "transformers",
        "4.46 and later",
        *("with_transformers.py", script, "python", script),
        "With these three settings exactly so many tokens are drafted; by itself it stops where the draft is unsure."
        + (
            " Vocabularies of other rows need tokenizer= and assistant_tokenizer= in generate."
            if draft.other_rows
            else ""
        ),
    )


#: What is known of a server that has a draft loaded and does not draft: too little for a term of its own.
_IDLE = (
    "0 in a schedule is not free: the draft stays loaded, its memory is counted, and its time is priced as that of a server "
    "without a draft. Measured with vLLM 0.27 on an H100, a schedule that never drafts takes 6.6 % longer at 2 sequences and "
    "21.6 % at 189; start a server without a draft where batches stay in that range"
)


def idle_draft_notes(lengths: Sequence[int]) -> tuple[str, ...]:
    """What is said beside a schedule some of whose draft lengths are 0.

    Args:
        lengths: of all batches; none where no server would load a draft.
    """
    return (_IDLE,) if 0 in lengths else ()


def _shared(parallelism: Parallelism, names: Mapping[str, str]) -> list[list[str | int]]:
    """Flags for several devices.

    Args:
        names: kind of parallelism -> flag.
    """
    parts = {
        "tensor": parallelism.tensor,
        "pipeline": parallelism.pipeline,
        "data": parallelism.data,
        "expert": parallelism.expert,
    }
    words: list[str | int] = [word for part, flag in names.items() if parts[part] > 1 for word in (flag, parts[part])]
    return [words] if words else []


def _vllm(served: Served) -> Engine | None:
    draft, schedule, parallelism = served.draft, served.schedule, served.parallelism
    settings: dict[str, Any] = {"method": {"network": "draft_model", "block": "dflash"}.get(draft.kind, draft.kind)}
    if draft.weights:
        settings["model"] = draft.weights
    notes = ["The draft has a KV cache of its own, of the target's size." if draft.kind == "network" else ""]
    if draft.kind == "medusa":
        notes.append(
            "vLLM reads Medusa heads by its own names (blocks.0.layers.0, lm_heads.0); convert those of other releases. "
            "0.33 has no Medusa heads."
        )
    # Replicas would choose different lengths, and vLLM then falls back to one.
    changes = served.changes and parallelism.data == 1
    settings["num_speculative_tokens"] = max(served.lengths) if changes else served.draft_length
    versions = "0.15 to 0.32" if draft.kind == "medusa" else "0.15 and later; 0.13 refuses draft models"
    if changes:
        # Inclusive ends; 0 drafts nothing.
        settings["num_speculative_tokens_per_batch_size"] = [
            [each.first, each.last, each.draft_length] for each in schedule
        ]
        versions = "0.25 to 0.32" if draft.kind == "medusa" else "0.25 and later"
        notes.append("Draft lengths by batch do not work with --data-parallel-size above 1.")
        if draft.kind not in ("eagle", "eagle3"):
            notes.append(
                "Earlier releases than 0.33 were tried with EAGLE heads alone and may refuse them for other drafts."
            )
        notes += [f"{said}." for said in idle_draft_notes(served.lengths)]
    elif served.changes:
        notes.append("One draft length: with --data-parallel-size above 1 vLLM takes none by batch.")
    if draft.other_rows:
        settings["use_heterogeneous_vocab"] = True
        versions = "0.25.1 and later"
        if changes:
            notes.append(
                "Such vocabularies take the older model runner, where lengths by batch turn full CUDA graphs off."
            )
    own = parallelism.draft_tensor
    if draft.kind == "network" and own not in (None, parallelism.tensor):
        if own == 1:
            settings["draft_tensor_parallel_size"] = own
        else:
            notes.append(
                f"vLLM divides a draft among 1 or all {parallelism.tensor} devices: it takes all instead of {own}."
            )
    text = json.dumps(settings)
    flags = {"tensor": "--tensor-parallel-size", "pipeline": "--pipeline-parallel-size", "data": "--data-parallel-size"}
    shared = _shared(parallelism, flags)
    if parallelism.expert > 1:
        shared.append(["--enable-expert-parallel"])
    serve = shell_command("vllm serve", [served.target], *served.dtype, *shared, ["--speculative-config", text])
    note = " ".join(each for each in notes if each)
    return Engine("vLLM", versions, *("vllm.json", f"{text}\n", "bash", serve), note + _skipped(served.tokenizer))


def _sglang(served: Served) -> Engine | None:
    draft, length, parallelism, tree = served.draft, served.draft_length, served.parallelism, served.tree
    # A network's own head is EAGLE's algorithm there, without weights beside the target's.
    algorithm = {
        "network": "STANDALONE",
        "eagle": "EAGLE",
        "eagle3": "EAGLE3",
        "mtp": "EAGLE",
        "ngram": "NGRAM",
        "block": "DFLASH",
    }
    if draft.kind not in algorithm:
        return None
    flags = {"tensor": "--tp-size", "pipeline": "--pp-size", "data": "--dp-size", "expert": "--ep-size"}
    lines: list[list[str | int]] = [["--model-path", served.target], *served.dtype, *_shared(parallelism, flags)]
    lines.append(["--speculative-algorithm", algorithm[draft.kind]])
    if draft.weights:
        lines.append(["--speculative-draft-model-path", draft.weights])
    note, versions, more = "The draft tokens that it counts include the root.", "0.5", {}
    first, branching, drafted = length, 1, length
    if tree is not None and draft.kind in ("eagle", "eagle3", "network"):
        first, branching, drafted = tree.depth, tree.branching, tree.nodes
        note += " It grows its tree anew in each cycle, of as many tokens."
    elif served.changes and draft.kind in _ADAPTIVE:
        # From each batch on exactly one number of steps; it begins with that of the smallest batches that draft.
        steps = {str(each.first): {"candidate_steps": [each.draft_length]} for each in served.schedule}
        drafted = first = next(filter(None, served.lengths))
        more = {_ADAPTIVE_FILE: json.dumps(steps, indent=2) + "\n"}
        versions = "releases with --speculative-adaptive-config"
        note += f" {_ADAPTIVE_FILE} sets the steps from each batch on; 0 steps draft nothing."
        note += "".join(f" {said}." for said in idle_draft_notes(served.lengths))
    if draft.kind not in ("ngram", "block"):
        lines.append(["--speculative-num-steps", first, "--speculative-eagle-topk", branching])
    lines.append(["--speculative-num-draft-tokens", drafted + 1])
    if more:
        lines.append(["--speculative-adaptive", "--speculative-adaptive-config", _ADAPTIVE_FILE])
    if draft.other_rows:
        note += " It takes this draft only once its vocabulary has as many rows as the target's."
    text = shell_command("python -m sglang.launch_server", *lines)
    return Engine(
        "SGLang", versions, *("sglang.txt", f"{text}\n", "bash", text), note + _skipped(served.tokenizer), more
    )


def _llama_cpp(served: Served) -> Engine | None:
    draft, parallelism = served.draft, served.parallelism
    kinds = {
        "network": "draft-simple",
        "eagle3": "draft-eagle3",
        "mtp": "draft-mtp",
        "ngram": "ngram-simple",
        "block": "draft-dflash",
    }
    if draft.kind not in kinds:
        return None
    convert, outtype = "python convert_hf_to_gguf.py", "f32" if served.float32 else "bf16"
    commands, target = downloaded(served.target, "target")
    own = "auto" if served.quantized else outtype
    ready = target.endswith(GGUF_SUFFIX)
    if not ready:
        commands.append(shell_command(convert, [target, "--outtype", own, "--outfile", "target.gguf"]))
    files = ["--model", target if ready else "target.gguf"]
    if draft.weights.endswith(GGUF_SUFFIX):
        files += ["--model-draft", draft.weights]
    elif draft.weights:
        # A head is converted with the sizes of its target at hand.
        beside = ["--target-model-dir", target] if draft.kind in ("eagle3", "block") else []
        fetched, weights = downloaded(draft.weights, "draft")
        commands += [
            *fetched,
            shell_command(convert, [weights, *beside, "--outtype", outtype, "--outfile", "draft.gguf"]),
        ]
        files += ["--model-draft", "draft.gguf"]
    limits: list[str | int] = [
        "--spec-draft-n-max",
        served.draft_length,
        "--spec-draft-n-min",
        0,
        "--spec-draft-p-min",
        0,
    ]
    note = "Earlier builds take --draft-max, --draft-min and --draft-p-min, and no --spec-type."
    if draft.kind == "ngram":
        # It reads no --spec-draft-*, and copies 48 tokens unless its own flag gives another number.
        limits = ["--spec-ngram-simple-size-m", served.draft_length]
        note = (
            "It drafts only where the last 12 tokens, or --spec-ngram-simple-size-n, have occurred before. Earlier builds "
            "take --spec-ngram-size-m."
        )
    # It divides matrices by rows or layers among all devices that it sees.
    split = (
        [["--split-mode", "row"]]
        if parallelism.tensor > 1
        else [["--split-mode", "layer"]]
        if parallelism.pipeline > 1
        else []
    )
    commands.append(shell_command("llama-server", [*files, "--spec-type", kinds[draft.kind]], *split, limits))
    text, missing = "\n".join(commands), _missing(served.tokenizer)
    note += missing and f"{missing}the conversion needs them."
    return Engine("llama.cpp", "builds since May 2026", *("llama_cpp.txt", f"{text}\n", "bash", text), note)


def _mlx(served: Served) -> Engine | None:
    draft = served.draft
    if draft.kind != "network":
        return None
    files = ["--model", served.target, "--draft-model", draft.weights]
    text = shell_command("mlx_lm.server", files, ["--num-draft-tokens", served.draft_length])
    note = "With a draft it decodes one request after another, whatever the batch. mlx_lm.convert makes weights in few bits."
    return Engine("MLX", "mlx-lm 0.32", *("mlx.txt", f"{text}\n", "bash", text), note)


_TRANSFORMERS = """from transformers import AutoModelForCausalLM

target = AutoModelForCausalLM.from_pretrained({target!r}, dtype="auto")
draft = AutoModelForCausalLM.from_pretrained({draft!r}, dtype="auto")
draft.generation_config.num_assistant_tokens = {length}
draft.generation_config.num_assistant_tokens_schedule = "constant"
draft.generation_config.assistant_confidence_threshold = 0.0
# Then, with the target's tokenizer:
# target.generate(**tokenizer(text, return_tensors="pt"), assistant_model=draft, do_sample=False)
"""
