"""Acceptance of a draft, from the numbers in which it is known: rates, shares of all cycles, a mean length, a log.

Engines print two of them. A *share* of position i is the part of all cycles in which drafted tokens 1 to i are accepted, so
shares fall along a draft even where every token has the same chance. A *mean length* is tokens per cycle, with the one that the
verification itself yields. Rates given the tokens before, which everything here computes with, are ratios of neighbouring
shares.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.struct
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.speculation.acceptance_traces import read_trace, tokens_to_rates

__all__ = ["Acceptance", "EngineLogError", "LoggedAcceptance", "iid_acceptance", "read_engine_log", "shares_to_rates"]


_NUMBER = r"(\d+(?:\.\d+)?)"

#: What a line may say, by field: numbers that follow these words.
_SAID = {
    "mean": rf"(?:mean (?:acceptance )?len(?:gth)?|#mean acc len|accept(?:ance)? len(?:gth)?)\s*[:=]\s*{_NUMBER}",
    "accepted": r"(?:\bAccepted: (\d+) tokens|\(\s*(\d+) accepted /|#acc tokens\s*=\s*(\d+)|accepted tokens: (\d+))",
    "drafted": (
        r"(?:\bDrafted: (\d+) tokens|accepted /\s*(\d+) generated|#gen tokens\s*=\s*(\d+)|draft tokens(?: tokens)?: (\d+))"
    ),
    "emitted": r"Number of emitted tokens(?: tokens)?: (\d+)",
    "length": r"Number of speculative tokens: (\d+)",
    "drafts": r"#gen drafts\s*=\s*(\d+)",
    "running": r"#running-req: (\d+)",
}
_FIELDS = {name: re.compile(words, re.IGNORECASE) for name, words in _SAID.items()}

#: Shares of cycles by position.
_SHARES = re.compile(
    r"(?:per-position acceptance rate|acceptance rate per position|#acc rate/pos|acc per pos)\s*[:=]\s*[(\[]?\s*"
    r"(\d*\.?\d+(?:\s*,\s*\d*\.?\d+)*)",
    re.IGNORECASE,
)

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
    lines = list(_gathered(text.splitlines()))
    if not lines:
        raise EngineLogError(
            f"log {name} has no line of speculative decoding; give a log of vLLM (SpecDecoding metrics), SGLang (accept len) "
            "or llama.cpp (draft acceptance)"
        )
    for complete in (_has_shares, _has_mean, _has_counts):
        # What is counted since the start counts requests that have lines of their own once more.
        for chosen in ([line for line in lines if not line.kind], _since_start(lines)):
            if used := [line for line in chosen if complete(line.fields)]:
                known = {int(found) for found in _LENGTHS.findall(text)}
                hint = known.pop() if len(known) == 1 else None
                found = _together(name, used, hint, draft_length)
                if strict and draft_length is not None and abs(draft_length - found.draft_length) > 1e-9:
                    raise EngineLogError(
                        f"log {name} has {found.draft_length:.3g} drafted tokens per cycle, and draft_length is "
                        f"{draft_length}; leave it out"
                    )
                return found
    raise EngineLogError(
        f"log {name} has counts of speculative decoding, all 0; give a log of requests that were served"
    )


def _has_shares(fields: Mapping[str, Any]) -> bool:
    return "shares" in fields


def _has_mean(fields: Mapping[str, Any]) -> bool:
    return fields.get("mean", 0) > 0 or fields.get("drafts", 0) > 0 or fields.get("emitted", 0) > 0


def _has_counts(fields: Mapping[str, Any]) -> bool:
    return fields.get("drafted", 0) > 0 and "accepted" in fields


def _gathered(lines: Iterable[str]) -> Iterator[_Line]:
    """Lines that say something; what a line leaves to the next ones, as wrapped ones and llama.cpp's do, is joined to it."""
    current: _Line | None = None
    for number, text in enumerate(lines, 1):
        fields: dict[str, Any] = {}
        for field, words in _FIELDS.items():
            if (match := words.search(text)) is not None:
                fields[field] = float(next(group for group in match.groups() if group is not None))
        if (match := _SHARES.search(text)) is not None:
            fields["shares"] = tuple(float(part) for part in match[1].split(","))
        if not fields or fields.keys() == {"running"}:
            continue
        counted = _STATISTICS.search(text)
        kind = counted[1] if counted else "emitted" if "emitted" in fields else ""
        if current is not None and current.kind == kind and not current.fields.keys() & fields.keys():
            current.fields.update(fields)
            continue
        if current is not None and current.fields.keys() & _NEEDED:
            yield current
        current = _Line(number, kind, fields)
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
        if (found := _cycles(line.fields, None)) is not None and line.fields.get("drafted"):
            drafted += line.fields["drafted"]
            cycles += found
            # A mean length is rounded, and with it the cycles that follow from it.
            if "drafts" not in line.fields and "length" not in line.fields:
                rounding += found * _MEAN_ROUNDING / max(line.fields["mean"] - 1.0, _MEAN_ROUNDING)
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


#: Most drafted tokens for which a rate is solved.
LONGEST_DRAFT = 128

#: Halvings of [0, 1], more than a float64 has bits.
_HALVINGS = 56


@flax.struct.dataclass
class Acceptance:
    """Acceptance of a draft; each field is a leaf in [0, 1], or None where a study has no draft of that kind."""

    conditional: Leaf = None  # chains: P(position accepted | all before it accepted), "*b position"
    node: Leaf = None  # trees: P(node accepted | its parent accepted), "*b node"; those of siblings sum to at most 1

    @classmethod
    def from_mean_length(cls, tokens_per_cycle: Number, draft_length: float) -> Acceptance:
        """The rate, equal at every position, that gives so many tokens per cycle; see `iid_acceptance`.

        Args:
            tokens_per_cycle: "*b", in [1, draft_length + 1]: the mean acceptance length of engines, bonus token included.
            draft_length: static; of the cycles that were counted, fractions too where lengths differ.
        Raises:
            ValueError: a draft length below 1 or beyond `LONGEST_DRAFT`; tokens that no such draft gains.
        """
        if not 1 <= draft_length <= LONGEST_DRAFT:
            raise ValueError(f"draft_length is {draft_length:g}; allowed is 1 to {LONGEST_DRAFT}")
        if not isinstance(tokens_per_cycle, Tracer):
            numbers = np.asarray(tokens_per_cycle, float)
            if not np.all((numbers >= 1) & (numbers <= draft_length + 1)):
                wrong = numbers[~((numbers >= 1) & (numbers <= draft_length + 1))].flat[0]
                raise ValueError(
                    f"tokens per cycle are {wrong:g} with {draft_length:g} drafted tokens; allowed is 1 (the verification's "
                    f"own token) to {draft_length + 1:g}"
                )
        rate = iid_acceptance(tokens_per_cycle, draft_length)
        return cls(jnp.broadcast_to(rate[..., None], (*rate.shape, math.ceil(draft_length))))

    @classmethod
    def from_cumulative(cls, shares: Sequence[float] | Float[Array | np.ndarray, "*b position"]) -> Acceptance:
        """Rates from the share of all cycles in which each position is accepted, as engines print them.

        Args:
            shares: "*b position", in [0, 1], not rising along a draft.
        Raises:
            ValueError: other numbers; no position.
        """
        if not isinstance(shares, Tracer):
            numbers = np.asarray(shares, float)
            if not numbers.ndim or not numbers.shape[-1] or not np.all((numbers >= 0) & (numbers <= 1)):
                raise ValueError(
                    f"shares of cycles are {numbers.tolist()}; give one number in [0, 1] for each position"
                )
            if np.any(np.diff(numbers, axis=-1) > 0):
                raise ValueError(
                    f"shares of cycles are {numbers.tolist()} and rise; a token is accepted only where all before it are"
                )
        return cls(shares_to_rates(jnp.asarray(shares)))

    @classmethod
    def from_engine_log(cls, path: str | os.PathLike[str], draft_length: int | None = None) -> Acceptance:
        """Rates from lines of vLLM's, SGLang's or llama.cpp's log; see `read_engine_log`.

        Raises:
            EngineLogError: no such line, or lines that need the draft length.
        """
        logged = read_engine_log(path, draft_length)
        if logged.shares is not None:
            return cls.from_cumulative(np.asarray(logged.shares))
        return cls.from_mean_length(logged.tokens_per_cycle, logged.draft_length)

    @classmethod
    def from_trace(
        cls, path: str | os.PathLike[str], draft_length: int, *, drafter: str | None = None, dataset: str | None = None
    ) -> Acceptance:
        """Numbers that give the counted tokens per cycle of every draft length up to this one; see `tokens_to_rates`.

        Raises:
            TraceError: not a trace, or without what is asked for.
        """
        trace = read_trace(path, () if drafter is None else (drafter,))
        chosen = trace if dataset is None else trace.of(dataset)
        return cls(jnp.asarray(tokens_to_rates(chosen.tokens_per_cycle(draft_length)), float))


def shares_to_rates(shares: Float[Array | np.ndarray, "*b position"]) -> Float[Array, "*b position"]:
    """P(position accepted | all before it accepted) from shares of all cycles; 0 behind a position that is never accepted.

    Gradient: right wherever the share before is above 0.
    """
    share = jnp.asarray(as_float(shares))
    before = jnp.concatenate([jnp.ones_like(share[..., :1]), share[..., :-1]], axis=-1)
    return jnp.where(before > 0, share / jnp.where(before > 0, before, 1.0), 0.0)


def iid_acceptance(tokens_per_cycle: Number, draft_length: Number) -> Float[Array, "*b"]:
    """The acceptance rate, equal at every position, with which a chain gains so many tokens per cycle.

    Args:
        tokens_per_cycle: "*b", in [1, draft_length + 1]; beyond these ends the rate is 0 or 1.
        draft_length: "*b", in [1, `LONGEST_DRAFT`]; between two whole numbers it is a mean over drafts of both lengths.
    Returns:
        "*b", in [0, 1]: the root of 1 + alpha + ... + alpha^draft_length = tokens_per_cycle.
    Gradient: that of the implicit function, with kinks at whole draft lengths; 0 beyond the ends.
    """
    tokens, length = jnp.broadcast_arrays(jnp.asarray(as_float(tokens_per_cycle)), jnp.asarray(as_float(draft_length)))
    tokens, length = tokens.astype(float), length.astype(float)
    drafted = jnp.clip(length[..., None] - jnp.arange(LONGEST_DRAFT, dtype=length.dtype), 0.0, 1.0)

    def excess(alpha: Array) -> tuple[Array, Array]:
        """Tokens beyond those asked for, and their derivative by alpha, by Horner's rule."""

        def step(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            value, slope = carry
            place = LONGEST_DRAFT - 1 - i
            at = lax.dynamic_index_in_dim(drafted, place, axis=-1, keepdims=False)
            return alpha * (at + value), (at + value) + alpha * slope

        value, slope = lax.fori_loop(0, LONGEST_DRAFT, step, (jnp.zeros_like(alpha), jnp.zeros_like(alpha)))
        return 1.0 + value - tokens, slope

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        above = excess(middle)[0] > 0
        return jnp.where(above, ends[0], middle), jnp.where(above, middle, ends[1])

    ends = lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(tokens), jnp.ones_like(tokens)))
    root = lax.stop_gradient(0.5 * (ends[0] + ends[1]))
    # One step of Newton's method from a constant has the derivative of the implicit function.
    value, slope = excess(root)
    alpha = root - value / lax.stop_gradient(jnp.maximum(slope, 1.0))
    alpha = alpha + lax.stop_gradient(jnp.clip(alpha, 0.0, 1.0) - alpha)
    return jnp.where(tokens < 1.0, 0.0, jnp.where(tokens > length + 1.0, 1.0, alpha))
