"""Acceptance from the lines that vLLM, SGLang and llama.cpp write into their logs.

Lines that are read, by what they print (M with the bonus token, k drafted tokens):

* vLLM: "SpecDecoding metrics: Mean acceptance length: M, ..., Accepted: a tokens, Drafted: d tokens, Per-position acceptance
  rate: s1, s2, ..." of the last seconds; s are shares of all cycles. Versions before 0.9 leave the bonus token out of M.
* vLLM's first engine: "Number of speculative tokens: k, ..., Number of draft tokens: d, Number of emitted tokens: e" since its
  start. Its acceptance rate also counts tokens behind a refused one; emitted tokens do not.
* SGLang: "Decode batch. #running-req: r, ..., accept len: M" of the last steps; k is in its line of server arguments.
* llama.cpp, of one request: "draft acceptance = f (a accepted / d generated), mean len = M", then "acc per pos = (s1, ...)";
  older ones have f alone. Of all requests so far, per drafter: "statistics NAME: #gen drafts = n, ..., #gen tokens = d, #acc
  tokens = a".

Responses of requests are read too, as JSON, one a line, wherever in it the counts of a request are:

* vLLM with --per-request-spec-decode-metrics: `metrics.speculative_decoding` with num_spec_steps, num_accepted_draft_tokens,
  num_draft_tokens, num_spec_tokens and acceptance_histogram, whose entry j counts cycles that accept exactly j tokens.
* SGLang: `meta_info` with spec_verify_ct, and spec_accept_histogram, spec_accept_token_num and spec_draft_token_num, in later
  versions spec_correct_drafts_histogram, spec_num_correct_drafts and spec_num_proposed_drafts; also in lines "Finish:
  obj=..., out=..." of its log. The first versions have completion_tokens alone, of which one is the prompt's.

Lines of one log are weighted by their cycles, where they can be counted, of SGLang by running requests.
Source: vllm/v1/spec_decode/metrics.py, vllm/spec_decode/metrics.py of 0.6, sglang/srt/managers/scheduler_metrics_mixin.py,
    llama.cpp's tools/server/server-context.cpp and common/speculative.cpp; of requests docs.vllm.ai, "Per-Request Acceptance
    Metrics", and sglang/srt/managers/tokenizer_manager.py (pull requests 11441, 18332 and 33518).
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.network.architecture import Architecture, weights_per_token
from hwmodels.numerics.fields import NOT_NEGATIVE, number
from hwmodels.numerics.scalars import Leaf, Number, as_float, same_rank
from hwmodels.speculation.draft_cost import DraftCost
from hwmodels.speculation.plan import Plan
from hwmodels.tables import read_table

__all__ = ["NO_ENGINE", "EngineLogError", "EngineTerms", "LoggedAcceptance", "engine_time", "read_engine_log"]

# Time that a serving engine spends outside its networks' kernels: acceptance test, sampling, metadata, scheduling,
# launches.


@flax.struct.dataclass
class EngineTerms:
    """Seconds that an engine adds, each a leaf, "*b", >= 0."""

    cycle_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per draft-verify cycle; autoregressive steps have none
    draft_pass_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per forward pass of a draft
    drafted_token_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per drafted token of each sequence
    #: Per prompt token processed beside decoding, and weight of the target that it meets on a device.
    prompt_weight_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    draft_layer_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per cycle and layer of the draft, a head being one layer
    mapped_pass_s: Leaf = number(NOT_NEGATIVE, default=0.0)  # per pass of a draft with `DraftCost.maps_logits`
    #: Per draft-verify cycle and device beyond the first that shares matrices: ranks that wait for each other's hosts.
    further_device_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    #: Per drafted token of each sequence and layer of the draft: attention starts anew for each sequence in each layer.
    drafted_token_layer_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    #: Per cycle in which a network or a head drafts, beside `cycle_s`: its launches, and inputs that are prepared for it.
    launched_cycle_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    #: Per cycle of a lookup, beside `cycle_s`, and for each of its sequences: the host searches each text.
    lookup_cycle_s: Leaf = number(NOT_NEGATIVE, default=0.0)
    lookup_sequence_s: Leaf = number(NOT_NEGATIVE, default=0.0)


#: Kernels alone.
NO_ENGINE = EngineTerms()


def engine_time(
    terms: EngineTerms,
    plan: Plan,
    *,
    target: Architecture,
    draft_cost: DraftCost,
    batch: Number,
    prompt_tokens: Number = 0.0,
    devices: Number = 1.0,
) -> Float[Array, "*b"]:
    """Seconds that an engine adds to one cycle.

    Args:
        terms: of the engine.
        plan: of the cycle, or of a family, "*b".
        target: whose layers a draft without an architecture of its own has; leaves "*b".
        draft_cost: leaves "*b"; a lookup has no passes and no layers.
        batch: sequences decoded together, "*b".
        prompt_tokens: of all sequences, processed beside this cycle, "*b".
        devices: that share each matrix, "*b".
    Gradient: exact; linear in every term, with a kink where a draft step takes one pass.
    """
    repeats, tokens = same_rank(jnp.asarray(as_float(plan.draft_repeats)), as_float(plan.draft_tokens))
    steps, drafted = jnp.sum(repeats, axis=-1), jnp.sum(repeats * tokens, axis=-1)
    layers = (target if draft_cost.architecture is None else draft_cost.architecture).num_layers
    prompts_s = prompts_time(terms, target, prompt_tokens, devices)
    numbers = map(as_float, (batch, draft_cost.passes, draft_cost.maps_logits, layers, prompts_s, devices))
    terms, steps, drafted, batch, passes, maps, layers, prompts_s, devices = same_rank(terms, steps, drafted, *numbers)
    launched = jnp.minimum(passes, 1.0)  # 0: a lookup, which runs no layers
    layers = layers * launched
    return (
        as_float(terms.cycle_s)
        + as_float(terms.launched_cycle_s) * launched
        + (as_float(terms.lookup_cycle_s) + as_float(terms.lookup_sequence_s) * batch) * (1.0 - launched)
        + as_float(terms.further_device_s) * (devices - 1.0)
        + as_float(terms.draft_layer_s) * layers
        + (as_float(terms.draft_pass_s) + as_float(terms.mapped_pass_s) * maps) * passes * steps
        + (as_float(terms.drafted_token_s) + as_float(terms.drafted_token_layer_s) * layers) * (drafted * batch)
        + prompts_s
    )


def prompts_time(terms: EngineTerms, target: Architecture, tokens: Number, devices: Number) -> Float[Array, "*b"]:
    """Seconds of prompt tokens beside decoding. Args: tokens: of all sequences, "*b". devices: that share each matrix, "*b"."""
    each = same_rank(*map(as_float, (terms.prompt_weight_s, weights_per_token(target), tokens, devices)))
    of_weight, weights, tokens, devices = each
    return of_weight * weights * tokens / devices


_PRINTED = read_table(__package__, "engine_logs.toml")
_MEAN, _BY_POSITION = (_PRINTED["before"][name] for name in ("mean", "shares"))
_LINES = {"mean": rf"{_MEAN}(\d+(?:\.\d+)?)", **_PRINTED["lines"]}
_FIELDS = {name: re.compile(words, re.IGNORECASE) for name, words in _LINES.items()}
_OF_REQUESTS: dict[str, list[str]] = _PRINTED["requests"]

#: Shares of cycles by position.
_SHARES = re.compile(rf"{_BY_POSITION}(\d*\.?\d+(?:\s*,\s*\d*\.?\d+)*)", re.IGNORECASE)

#: One of them that is no number, as 0 / 0.
_NO_NUMBER = re.compile(rf"(?:{_MEAN}|{_BY_POSITION}(?:[\d.]+\s*,\s*)*)(?:-|nan|inf)", re.IGNORECASE)

#: Beginning of a line of llama.cpp that counts all requests so far.
_STATISTICS = re.compile(r"statistics\s+([\w-]+):")

#: Fields of which a line must have one.
_NEEDED = {"mean", "shares", "accepted", "emitted"}

#: Draft length among the arguments that a server prints when it starts.
_LENGTHS = re.compile(r"(?:speculative_num_steps|num_speculative_tokens|num_spec_tokens)[\"']?\s*[=:]\s*(\d+)")

#: Half of the last digit that engines print of a mean length, and of a share.
_MEAN_ROUNDING, _SHARE_ROUNDING = 0.0051, 0.00051


class EngineLogError(ValueError):
    """A log has no line that can be read, or needs another number; one line for the user."""


class LoggedAcceptance(NamedTuple):
    """What a log says.

    Attributes:
        shares: of all cycles, by position; None where only a mean length is known.
        tokens_per_cycle: mean, the verification's own token included.
        draft_length: drafted tokens of a cycle, a mean where they differ.
        cycles: that were counted; None where no line tells.
        lines: that were read.
    """

    shares: tuple[float, ...] | None
    tokens_per_cycle: float
    draft_length: float
    cycles: float | None
    lines: int


class _Line(NamedTuple):
    number: int
    kind: str  # "": of its own requests or seconds; else the name of a count since the start
    fields: dict[str, Any]


def read_engine_log(
    path: str | os.PathLike[str], draft_length: int | None = None, *, strict: bool = True
) -> LoggedAcceptance:
    """Read a log as it is, all its lines of speculative decoding together.

    Args:
        draft_length: drafted tokens of a cycle; needed where no line tells it.
        strict: refuse another draft length than the log's own, which otherwise wins.
    Raises:
        EngineLogError: no such line; lines that contradict themselves, or the draft length; the draft length is needed.
    """
    name = repr(os.fspath(path))
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise EngineLogError(f"log {name} cannot be read ({error.strerror}); give the log of an engine") from error
    lines = list(_gathered(name, text.splitlines() if _parsed(text) is None else [text]))
    if not lines:
        raise EngineLogError(
            f"log {name} has no line of speculative decoding; give a log of vLLM (SpecDecoding metrics), SGLang (accept len) "
            "or llama.cpp (draft acceptance), or responses of vLLM (metrics.speculative_decoding) or SGLang "
            "(meta_info.spec_verify_ct) as JSON lines"
        )
    for complete in (_has_shares, _has_mean, _has_counts):
        # What is counted since the start counts requests that have lines of their own once more.
        for chosen in ([line for line in lines if not line.kind], _since_start(lines)):
            if used := [line for line in chosen if complete(line.fields)]:
                known = {int(length) for length in _LENGTHS.findall(text)}
                hint = known.pop() if len(known) == 1 else None
                log = _together(name, used, hint, draft_length)
                if strict and draft_length is not None and abs(draft_length - log.draft_length) > 1e-9:
                    raise EngineLogError(
                        f"log {name} has {log.draft_length:.3g} drafted tokens per cycle, and draft_length is "
                        f"{draft_length}; leave it out"
                    )
                return log
    raise EngineLogError(
        f"log {name} has counts of speculative decoding, all 0; give a log of requests that were served"
    )


def _has_shares(fields: Mapping[str, Any]) -> bool:
    return "shares" in fields


def _has_mean(fields: Mapping[str, Any]) -> bool:
    return fields.get("mean", 0) > 0 or fields.get("drafts", 0) > 0 or fields.get("emitted", 0) > 0


def _has_counts(fields: Mapping[str, Any]) -> bool:
    return fields.get("drafted", 0) > 0 and "accepted" in fields


def request_counts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every table within a JSON value that counts the cycles of a request."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping) and any(isinstance(each.get(key), int) for key in _OF_REQUESTS["drafts"]):
            yield each
        elif isinstance(each, (Mapping, list)):
            waiting += reversed(list(each.values() if isinstance(each, Mapping) else each))


def _of_request(name: str, number: int, counts: Mapping[str, Any]) -> _Line | None:
    """The fields of a request; None where it has no cycle."""
    raw = {
        field: next((counts[key] for key in keys if counts.get(key) is not None), None)
        for field, keys in _OF_REQUESTS.items()
    }
    histogram = raw.pop("histogram")
    listed = histogram is None or isinstance(histogram, list)
    counted = [each for each in (*raw.values(), *(histogram if listed and histogram else ())) if each is not None]
    if not listed or any(type(each) is not int or each < 0 for each in counted):
        raise EngineLogError(
            f"log {name}, line {number}: counts of a request are no whole numbers from 0; give the response as it is"
        )
    fields: dict[str, Any] = {field: float(each) for field, each in raw.items() if each is not None}
    cycles, tokens = fields["drafts"], fields.pop("tokens", 0.0)
    if not cycles:
        return None
    if histogram:
        total, accepted = sum(histogram), sum(place * count for place, count in enumerate(histogram))
        if total != cycles or accepted != fields.setdefault("accepted", float(accepted)):
            raise EngineLogError(
                f"log {name}, line {number}: acceptance by cycle counts {total} cycles and {accepted} accepted tokens, and the "
                f"request has {cycles:g} and {fields['accepted']:g}; give the response as it is"
            )
        drafted = fields["length"] if "length" in fields else round(fields.get("drafted", 0.0) / cycles)
        behind = [sum(histogram[place:]) for place in range(1, max(len(histogram), int(drafted) + 1))]
        fields["shares"] = tuple(count / cycles for count in behind)
    if "accepted" not in fields:  # of the tokens one is the prompt's
        fields["mean"] = max((tokens - 1.0) / cycles, 1.0)
    return _Line(number, "", fields)


def _parsed(text: str) -> Any:
    """A text that is JSON, or the end of a request in the log of SGLang; None of every other."""
    _, end, result = text.partition(", out={")
    try:
        return ast.literal_eval("{" + result) if end else json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _gathered(name: str, lines: Iterable[str]) -> Iterator[_Line]:
    """Lines that say something; what a line leaves to the next ones, as wrapped ones and llama.cpp's do, is joined to it."""
    current: _Line | None = None
    for line_number, text in enumerate(lines, 1):
        if requests := list(request_counts(_parsed(text))):
            yield from filter(None, (_of_request(name, line_number, counts) for counts in requests))
            continue
        fields: dict[str, Any] = {}
        for field, words in _FIELDS.items():
            if (match := words.search(text)) is not None:
                fields[field] = float(next(group for group in match.groups() if group is not None))
        if (match := _SHARES.search(text)) is not None:
            fields["shares"] = tuple(float(part) for part in match[1].split(","))
        if (wrong := _NO_NUMBER.search(text)) is not None and fields.get("drafted") != 0.0:
            raise EngineLogError(
                f"log {name}, line {line_number}: {wrong[0]!r} is where a number from 0 should be; give a log as the "
                "engine wrote it, or leave the line out"
            )
        if wrong is not None or not fields or fields.keys() == {"running"}:
            continue
        counted = _STATISTICS.search(text)
        kind = counted[1] if counted else "emitted" if "emitted" in fields else ""
        if current is not None and current.kind == kind and not current.fields.keys() & fields.keys():
            current.fields.update(fields)
            continue
        if current is not None and current.fields.keys() & _NEEDED:
            yield current
        current = _Line(line_number, kind, fields)
    if current is not None and current.fields.keys() & _NEEDED:
        yield current


def _since_start(lines: Sequence[_Line]) -> list[_Line]:
    """The last of each count since a start; a count that falls has begun anew."""
    ends: list[_Line] = []
    last: dict[str, _Line] = {}
    for line in lines:
        if not line.kind:
            continue
        before = last.get(line.kind)
        if before is not None and line.fields.get("drafted", 0) < before.fields.get("drafted", 0):
            ends.append(before)
        last[line.kind] = line
    return [line for line in (*ends, *last.values()) if line.fields.get("drafted", 0) > 0]


def _together(name: str, lines: Sequence[_Line], hint: int | None, given: int | None) -> LoggedAcceptance:
    if _has_shares(lines[0].fields):
        return _by_position(name, lines)
    length = _common_length(name, lines, hint, given)
    means, weights = [], []
    for line in lines:
        fields = line.fields
        cycles = _cycles(fields, length)
        mean = fields.get("mean") or (
            fields["emitted"] / cycles if "emitted" in fields else 1.0 + fields["accepted"] / cycles
        )
        if not 1.0 - _MEAN_ROUNDING <= mean <= length + 1.0 + _MEAN_ROUNDING:
            raise EngineLogError(
                f"log {name}, line {line.number}: {mean:.4g} tokens per cycle came with {length:g} drafted tokens; possible "
                f"are 1 to {length + 1:g}"
            )
        means.append(mean)
        weights.append(cycles)
    total, counted = _weights(lines, weights)
    mean = sum(each * weight for each, weight in zip(means, total, strict=True)) / sum(total)
    return LoggedAcceptance(None, min(max(mean, 1.0), length + 1.0), length, counted, len(lines))


def _common_length(name: str, lines: Sequence[_Line], hint: int | None, given: int | None) -> float:
    """Drafted tokens of a cycle: what lines count, else what the server printed, else what was given."""
    drafted = cycles = rounding = 0.0
    for line in lines:
        if (logged := _cycles(line.fields, None)) is not None and line.fields.get("drafted"):
            drafted += line.fields["drafted"]
            cycles += logged
            # A mean length is rounded, and with it the cycles that follow from it.
            if "drafts" not in line.fields and "length" not in line.fields:
                rounding += logged * _MEAN_ROUNDING / max(line.fields["mean"] - 1.0, _MEAN_ROUNDING)
    if not cycles:
        known = given if hint is None else hint
        if known is None:
            raise EngineLogError(
                f"log {name} says how many tokens were accepted and not how many each cycle drafts; give draft_length as well"
            )
        return float(known)
    length = drafted / cycles
    tolerance = length * min(rounding / cycles, 0.5)
    whole = round(length) if given is None else given
    return max(float(whole if abs(whole - length) <= tolerance else length), 1.0)


def _cycles(fields: Mapping[str, Any], length: float | None) -> Any:
    """Cycles of a line; None where it does not tell."""
    if "drafts" in fields:
        return fields["drafts"]
    own = fields.get("length") if "emitted" in fields or length is None else length
    if "mean" in fields and fields.get("accepted", 0) > 0 and fields["mean"] > 1.0:
        return fields["accepted"] / (fields["mean"] - 1.0)
    return fields["drafted"] / own if own and fields.get("drafted") else None


def _weights(lines: Sequence[_Line], cycles: Sequence[float | None]) -> tuple[list[float], float | None]:
    """How much each line counts, and the cycles of all where lines tell."""
    known = [each for each in cycles if each is not None]
    if len(known) == len(lines):
        return known, sum(known)
    running = [line.fields.get("running", 0.0) for line in lines]
    return (running if all(running) else [1.0] * len(lines)), None


def _by_position(name: str, lines: Sequence[_Line]) -> LoggedAcceptance:
    """Shares of all lines: accepted over reached at each position, of the lines that draft so far."""
    cycles: list[float | None] = []
    for line in lines:
        shares, total = line.fields["shares"], sum(line.fields["shares"])
        for before, share in zip((1.0, *shares), shares):
            if share > before:
                raise EngineLogError(
                    f"log {name}, line {line.number}: the shares of cycles by position, {', '.join(map(str, shares))}, rise or "
                    "exceed 1; give a log as the engine wrote it"
                )
        mean, slack = line.fields.get("mean"), _MEAN_ROUNDING + len(shares) * _SHARE_ROUNDING
        if mean is not None and min(abs(1.0 + total - mean), abs(total - mean)) > slack:
            raise EngineLogError(
                f"log {name}, line {line.number}: shares of cycles add up to {1 + total:.3f} tokens per cycle, and its mean "
                f"length is {mean:g}; give a log as the engine wrote it"
            )
        accepted, drafted = line.fields.get("accepted"), line.fields.get("drafted")
        counted = accepted / total if accepted and total else drafted / len(shares) if drafted else None
        cycles.append(line.fields.get("drafts", counted))
    positions = max(len(line.fields["shares"]) for line in lines)
    weights, counted = _weights(lines, cycles)
    pooled, reach = [], 1.0
    for place in range(positions):
        here = [
            (w, (1.0, *line.fields["shares"])) for w, line in zip(weights, lines) if len(line.fields["shares"]) > place
        ]
        reached = sum(weight * shares[place] for weight, shares in here)
        accepted = sum(weight * shares[place + 1] for weight, shares in here)
        reach *= accepted / reached if reached else 0.0
        pooled.append(min(reach, 1.0))
    return LoggedAcceptance(tuple(pooled), 1.0 + sum(pooled), float(positions), counted, len(lines))
