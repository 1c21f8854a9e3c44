"""What an exported directory holds besides weights: its files, and a README for engines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from jaxspec.cleanup import PENDING
from jaxspec.errors import InputError
from jaxspec.formats.shard_index import INDEX_FILE, read_json_object
from jaxspec.models.layer_files import LayeredTensors, index_json, plan_shards, write_shard
from jaxspec.output_places import check_folder_place
from jaxspec.partial_files import CONTAINER_SUFFIX, PartialFiles, to_json
from jaxspec.report.formatting import fixed, times
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, SCHEME_FACTS, SchemeFacts
from jaxspec.studies.engine_flags import Engine
from jaxspec.studies.export.result import DecodedDraft, ExportResult

#: The manifest of an export, which tells it from other folders.
MANIFEST = "jaxspec_export.json"


#: Folder in an export that holds the target, where the draft belongs to no checkpoint that exists.
TARGET = "target"


def check_place(out: Path, *, force: bool, kept: Mapping[str, Path]) -> None:
    """Where an export may be written: a folder that is not there, is empty, or, by `force`, holds an earlier export.

    Args:
        kept: what is never written into, by what it is.
    Raises:
        InputError: another place.
    """
    check_folder_place(out, "export")
    for what, path in kept.items():
        for place, verb in ((out, "is"), (out / TARGET, f"has in its folder {TARGET!r}")):
            if os.path.exists(place) and os.path.exists(path) and os.path.samefile(place, path):
                raise InputError(f"{str(out)!r} {verb} {what}; give another --out")
    there = sorted(os.listdir(out)) if os.path.isdir(out) else []
    if MANIFEST in there and not force:
        raise InputError(f"{str(out)!r} holds an export already; give another --out, or --force to replace it")
    if there and MANIFEST not in there:
        raise InputError(
            f"{str(out)!r} holds {there[0]!r} and is no earlier export; give --out a folder that is empty or not there"
        )


def write_directory(
    out: Path,
    networks: Mapping[str, LayeredTensors],
    finish: Callable[[dict[str, int]], dict[str, bytes]],
    *,
    shard_bytes: int,
    on_bytes: Callable[[int, str], None],
) -> dict[str, int]:
    """Write the weights, shard by shard, and then the files beside them; each gets its name once all are whole.

    Args:
        networks: by the folder within `out` that they are written into, "" for `out` itself; in the order of writing.
        finish: from name and bytes of the files of weights, index included, to the contents of all others, by name.
    Returns:
        name -> bytes of all files.
    Raises:
        InputError: the folder cannot be made.
    """
    sizes: dict[str, int] = {}
    indices: dict[str, bytes] = {}
    with PartialFiles() as files:
        try:
            files.make_folder(out)
        except OSError as error:
            raise InputError(f"{out} cannot be made a folder ({error.strerror}); give another --out") from error
        for folder, tensors in networks.items():
            shards, values = plan_shards(tensors.forms, shard_bytes), tensors.values()
            for shard in shards:
                name = str(PurePosixPath(folder) / shard.name)
                with files.add(out / name).open("wb") as file:
                    write_shard(file, shard, values, on_bytes=on_bytes)
                    sizes[name] = file.tell()
            if len(shards) > 1:
                indices[str(PurePosixPath(folder) / INDEX_FILE)] = to_json(index_json(shards)).encode()
        others = indices | finish(sizes | {name: len(content) for name, content in indices.items()})
        # Without a configuration no engine opens a folder: what was there stops being a network before its files are
        # exchanged, and what comes begins to be one with its last files.
        for name in sorted(others, key=_is_config):
            files.add(out / name).write_bytes(others[name])
            sizes[name] = len(others[name])
        with PENDING.lock:
            remove_earlier(out)
            files.commit()
    return sizes


def remove_earlier(out: Path) -> None:
    """Remove the files of an earlier export, its configuration first."""
    if not (out / MANIFEST).is_file():
        return
    listed = read_json_object(out / MANIFEST).get("files")
    names = {name for name in listed if isinstance(name, str)} if isinstance(listed, dict) else set()
    for name in sorted(names | {MANIFEST}, key=lambda name: (not _is_config(name), name)):
        # What a manifest that somebody changed names outside its folder stays.
        if (out / name).resolve().is_relative_to(out.resolve()):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                (out / name).unlink()
    with contextlib.suppress(OSError):  # it has something else in it, or is not there
        (out / TARGET).rmdir()


def _is_config(name: str) -> bool:
    return PurePosixPath(name).name == "config.json"


def readme(result: ExportResult, engines: Sequence[Engine]) -> str:
    """The page of an export."""
    length = result.draft_length.known
    return "\n".join(
        [
            f"# Draft for {result.target}",
            "",
            f"This network drafts for speculative decoding with {result.target} as the target. It is {_made_of(result)}: "
            f"configuration `{result.configuration}` for device `{result.device}` of a run of `jaxspec {result.command}`, bit "
            f"for bit. Weights are stored whole, in {result.dtype}.",
            "",
            *_rounded_target(result),
            *_with_head(result),
            *_unpacked(result),
            f"**Draft {length} tokens per cycle.** {_about_length(result)}",
            "",
            "## What carries over, and what does not",
            "",
            "| decoding | KV cache of the draft | alpha_token | tokens per cycle |",
            "|---|---|---|---|",
            _row("in the run", "the target's, compressed" if result.compressed_kv else "the target's", result.in_run),
            _row("as engines do it", "its own, whole", result.alone),
            "",
            *_points(result, length),
            "",
            "Flags change with versions; these were read from the engines' documentation in 2026.",
            *(line for engine in engines for line in engine_section(engine)),
            "",
        ]
    )


def _facts(result: ExportResult) -> SchemeFacts:
    return SCHEME_FACTS.get(result.scheme or "", SCHEME_FACTS[DEFAULT_SCHEME_NAME])


def _made_of(result: ExportResult) -> str:
    zeros = _per_cent(result.zero_share.known)
    if _facts(result).prunes_and_cuts:
        return (
            f"the target itself with {zeros} of the weights of its layers' matrices zero and low mantissa bits of the others "
            f"cut to {_facts(result).cut_to}"
        )
    return (
        f"the upper bits of the target's 8-bit weights, times the same scales, in the matrices of its layers ({zeros} of these "
        "weights are zero)"
    )


def _rounded_target(result: ExportResult) -> list[str]:
    """About a target that was written beside the draft."""
    if result.checkpoint is None:
        return []
    facts = _facts(result)
    about = [
        f"**The target is in `{TARGET}/`, not in {result.checkpoint}.** Scheme `{facts.name}` rounds the matrices of the "
        "layers, and draft, acceptance and output are those of the rounded network: its values as the run decoded with them, "
        f"stored whole, in {result.target_dtype}. With the checkpoint as the target the output is the checkpoint's, and how "
        "much of this draft it accepts was not measured."
    ]
    if "float32" in (result.dtype, result.target_dtype):
        about.append(
            "These values have more digits than 16 bits hold, so engines have to compute in float32. The flags below say so; "
            "the fastest attention kernels take 16 bits only. In 16 bits engines round both networks once more, and the output "
            "is that of yet another network."
        )
    if facts.shared_exponents is not None:
        about.append(
            "The run's target kept its KV cache in blocks of shared exponents too. Engines keep it whole, so that their output "
            "may differ from the run's after some tokens."
        )
    if any(spec.per == "experts" for spec in facts.knob_specs):
        about.append(
            "Where the network has experts, the run's draft chose among a pool of them; here it chooses among all."
        )
    return [" ".join(about), ""]


def _about_length(result: ExportResult) -> str:
    if result.draft_length.status == "input":
        return "The number was given to the run."
    return (
        f"The number is the best one predicted for {result.architecture} on {result.device}, where draft steps read compressed "
        "weights; an engine that reads them whole may want a smaller one."
    )


def _with_head(result: ExportResult) -> list[str]:
    if not _facts(result).head:
        return []
    return [
        "Its LM head is pruned and cut as well. Where the target's head is its embedding, the draft's is a matrix of its own "
        "(`tie_word_embeddings` is false); engines that take the head of a family for its embedding in any case, as vLLM does "
        "with Gemma 2, cannot run it.",
        "",
    ]


def _unpacked(result: ExportResult) -> list[str]:
    if result.container is None:
        return []
    container, first = result.container, ""
    if not container.endswith(
        CONTAINER_SUFFIX
    ):  # a GGUF file, of which engines take the values that the draft was made for
        container, first = (
            f"{result.target}{CONTAINER_SUFFIX}",
            f"`jaxspec pack {container} -o {result.target}.jspk`, then ",
        )
    return [f"Unpack the target first: {first}`jaxspec unpack {container} -o {result.target}`.", ""]


def _row(name: str, cache: str, draft: DecodedDraft) -> str:
    tokens, error = draft.tokens_per_cycle.number, draft.tokens_per_cycle.standard_error
    if tokens is None:
        return f"| {name} | {cache} | not measured | not measured |"
    spread = "" if error is None else f" ± {fixed(error, 3)}"
    prompts = f" ({draft.prompts.value} prompts)" if draft.prompts.value is not None else ""
    alpha = draft.acceptance.alpha_token.number
    return f"| {name}{prompts} | {cache} | {'' if alpha is None else fixed(alpha, 3)} | {fixed(tokens, 3)}{spread} |"


def _points(result: ExportResult, length: int) -> list[str]:
    """What to expect, as a list."""
    tokens = result.alone.tokens_per_cycle.number
    measured = "the second row" if tokens is not None else "measured with `jaxspec export --prompts`"
    points = [
        f"* **Acceptance carries over** ({measured}): output is the target's own, and so many drafted tokens are "
        "accepted on text like the run's.",
        f"* **The predicted speed does not.** {times(result.speedup_vs_bf16_ar.known)} over 16-bit decoding was predicted for "
        f"draft steps that read {fixed(result.bits_per_weight.known, 2)} bits per weight. These engines read all bits of every "
        "weight, zeros included, so that a draft step takes as long as a step of the target.",
    ]
    if tokens is not None:
        points[-1] += (
            f" With this draft as it is, expect about {times(tokens / (length + 1))} the speed of decoding without a draft "
            f"({fixed(tokens, 2)} tokens for the time of {length + 1} steps)."
        )
    if result.compressed_kv:
        points.append(
            "* **The KV cache is not compressed here.** The run's draft read the target's KV cache with values pruned or cut; "
            "these engines give the draft a whole KV cache of its own, which its own weights fill. That is why the rows differ."
        )
    else:
        points.append(
            "* **The KV cache is the draft's own here.** The run's draft read the target's. That is why the rows may differ."
        )
    return points


def engine_section(engine: Engine) -> list[str]:
    """How one engine takes the draft."""
    return [
        "",
        f"## {engine.title}",
        "",
        f"For {engine.versions}. {engine.note}".rstrip(),
        "",
        f"```{engine.language}",
        engine.shown.rstrip("\n"),
        "```",
    ]


def _per_cent(share: float) -> str:
    return f"{fixed(100 * share, 1)} %"
