"""Acceptance of a draft, from the numbers in which it is known: rates, shares of all cycles, a mean length, a log.

Engines print two of them. A *share* of position i is the part of all cycles in which drafted tokens 1 to i are accepted, so
shares fall along a draft even where every token has the same chance. A *mean length* is tokens per cycle, with the one that the
verification itself yields. Rates given the tokens before, which everything here computes with, are ratios of neighbouring
shares.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from hwmodels.numerics import fields
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.speculation.engine_logs import read_engine_log, request_counts

__all__ = [
    "Acceptance",
    "AcceptanceTrace",
    "TraceError",
    "chain_cycles",
    "iid_acceptance",
    "read_trace",
    "shares_to_rates",
    "tokens_to_rates",
    "write_trace",
]

# Tokens that drafts would have gained at every token of generated texts: acceptance without a fitted law.

#: Keys of a line that are no drafters.
_OTHERS = ("dataset", "request", "prompt_tokens", "generated_tokens")

#: Walks that go side by side: enough to hide the cost of a step, few enough to end at about the same time, and on one core.
WALKERS = 1024

#: Most tokens that a cycle gains, of an int16.
_MOST_GAINED = 2**15 - 1

#: Gain of a length, in tokens per cycle, that is taken as none where a longer draft gains more.
_NO_GAIN = 1e-7


class TraceError(ValueError):
    """A file that is no trace, or has not what is asked for; one line for the user."""


@dataclasses.dataclass(frozen=True, eq=False)
class AcceptanceTrace:
    """Gains of one or more drafters along the same requests, on the host.

    Attributes:
        gained: "drafter token", all requests one after the other; 1 or more.
        generated: " request", tokens of each.
        prompt_tokens: " request"; 0 where nobody knows.
        datasets, requests: names, one for each request; "" where there is none.
        drafters: names.
    """

    gained: Int[np.ndarray, "drafter token"]
    generated: Int[np.ndarray, " request"]
    prompt_tokens: Int[np.ndarray, " request"]
    datasets: tuple[str, ...]
    requests: tuple[str, ...]
    drafters: tuple[str, ...]

    def of(self, dataset: str) -> AcceptanceTrace:
        """The requests of one data set. Raises TraceError: there are none."""
        chosen = np.array([name == dataset for name in self.datasets])
        if not chosen.any():
            known = ", ".join(dict.fromkeys(name for name in self.datasets if name)) or "no names of data sets"
            raise TraceError(f"the trace has no data set {dataset!r}; it has {known}")
        names = np.flatnonzero(chosen)
        return AcceptanceTrace(
            self.gained[:, np.repeat(chosen, self.generated)],
            self.generated[chosen],
            self.prompt_tokens[chosen],
            tuple(self.datasets[i] for i in names),
            tuple(self.requests[i] for i in names),
            self.drafters,
        )

    def tokens_per_cycle(self, longest: int) -> Float[np.ndarray, " length"]:
        """Generated tokens over cycles of all requests, of the first drafter's chains of 1 to `longest` tokens."""
        cycles = chain_cycles(self, np.arange(1, longest + 1)).sum(axis=0)
        return self.generated.sum() / cycles

    def bootstrap(self, longest: int, *, draws: int = 1000, seed: int = 0) -> Float[np.ndarray, "draw length"]:
        """The same of requests drawn again and again with replacement: its scatter is the error over requests."""
        cycles = chain_cycles(self, np.arange(1, longest + 1))
        count = len(self.generated)
        drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=draws)
        return (drawn @ self.generated)[:, None] / (drawn @ cycles)


def tokens_to_rates(tokens: Float[np.ndarray, " length"]) -> Float[np.ndarray, " length"]:
    """Numbers from which `tokens_per_cycle` makes exactly these tokens per cycle of chains of 1, 2, ... drafted tokens.

    They are rates of acceptance where cycles of all lengths begin at the same tokens. Those of a trace do not quite, so that
    far out, where a longer draft gains next to nothing, one may leave [0, 1].
    """
    gains = np.diff(np.asarray(tokens, np.float64), prepend=1.0)
    later = np.flip(np.maximum.accumulate(np.flip(np.abs(gains)))) > 0  # whether this length or a longer one gains
    gains = np.where((gains == 0) & later, _NO_GAIN, gains)
    before = np.concatenate([[1.0], gains[:-1]])
    return np.divide(gains, before, out=np.zeros_like(gains), where=before != 0)


def chain_cycles(
    trace: AcceptanceTrace, lengths: Int[np.ndarray, " length"], *, drafter: int = 0
) -> Int[np.ndarray, "request length"]:
    """Cycles of every request with chains of each length, 0 or more drafted tokens, of one drafter."""
    taken = jnp.asarray(lengths, jnp.int32) + 1
    narrow = np.int8 if trace.gained.max(initial=1) < 128 else np.int16  # what is read again and again
    order, (starts, ends) = in_chunks(trace, len(lengths))
    counted = _chain_cycles(jnp.asarray(trace.gained[drafter].astype(narrow)), starts, ends, taken)
    cycles = np.empty((len(trace.generated), len(lengths)), np.int64)
    cycles[order] = np.asarray(counted).reshape(-1, len(lengths))[: len(order)]
    return cycles


def in_chunks(trace: AcceptanceTrace, lanes: int) -> tuple[np.ndarray, tuple[Array, Array]]:
    """Requests sorted by their tokens, so that those walked together end together, and starts and ends "chunk request".

    Args:
        lanes: walks along each request.
    """
    order = np.argsort(-trace.generated, kind="stable")
    ends = np.cumsum(trace.generated)
    together = max(1, min(len(order), WALKERS // max(lanes, 1)))
    shaped = lambda values: jnp.asarray(np.pad(values[order], (0, -len(order) % together)), jnp.int32).reshape(
        -1, together
    )
    return order, (shaped(ends - trace.generated), shaped(ends))


@jax.jit
def _chain_cycles(gained: Array, starts: Array, ends: Array, taken: Int[Array, " length"]) -> Array:
    def chunk(where: tuple[Array, Array]) -> Array:
        shape = (*where[0].shape, taken.size)
        start, end = (jnp.broadcast_to(each[:, None], shape) for each in where)

        def cycle(state: tuple[Array, Array]) -> tuple[Array, Array]:
            token, cycles = state
            going = token < end
            gain = gained.at[token].get(mode="clip").astype(jnp.int32)
            token = jnp.where(going, token + jnp.minimum(gain, taken[None]), token)
            return token, cycles + going.astype(jnp.int32)

        unfinished = lambda state: jnp.any(state[0] < end)
        return lax.while_loop(unfinished, cycle, (start, jnp.zeros(shape, jnp.int32)))[1]

    return lax.map(chunk, (starts, ends))


def read_trace(path: str | os.PathLike[str], drafters: Sequence[str] = ()) -> AcceptanceTrace:
    """Read a trace, a file of JSON lines, also compressed with gzip.

    Args:
        drafters: which; empty: the only one. Of several, requests are kept whose lists are equally long: others belong to
            different generations.
    Raises:
        TraceError: not such a file; a drafter that it does not have; no request.
    """
    name = repr(os.fspath(path))
    rows: list[tuple[Mapping[str, Any], list[np.ndarray]]] = []
    known: dict[str, None] = {}
    for number, raw in _lines(path):
        if next(request_counts(raw), None) is not None:
            raise TraceError(
                f"trace {name}, line {number}, is a response of an engine, which does not say what every token would gain; "
                "give the file as acceptance_log"
            )
        present = [key for key, value in raw.items() if key not in _OTHERS and isinstance(value, list)]
        known |= dict.fromkeys(present)
        if not drafters and len(present) != 1:
            several = f"has drafters {', '.join(present)}; give one as drafter"
            none = "names no drafter; give a list of the tokens that a cycle gains at each generated token, by its name"
            raise TraceError(f"trace {name}, line {number}, {several if present else none}")
        asked = drafters or present
        if lacking := [key for key in asked if key not in present]:
            raise TraceError(
                f"trace {name}, line {number}, has no drafter {lacking[0]!r}; it has {', '.join(present) or 'none'}"
            )
        lists = [_gains(name, number, key, raw[key]) for key in asked]
        if len({len(each) for each in lists}) == 1:
            rows.append((raw, lists))
    if not rows:
        raise TraceError(
            f"trace {name} has no request{' with lists of equal length' if known else ''}; give another file"
        )
    numbers = lambda key: np.array([_whole(name, raw.get(key, 0), key) for raw, _ in rows], np.int64)
    return AcceptanceTrace(
        np.stack([np.concatenate(lists) for lists in zip(*(lists for _, lists in rows), strict=True)]),
        np.array([len(lists[0]) for _, lists in rows], np.int64),
        numbers("prompt_tokens"),
        tuple(str(raw.get("dataset", "")) for raw, _ in rows),
        tuple(str(raw.get("request", place)) for place, (raw, _) in enumerate(rows)),
        tuple(drafters or known),
    )


def write_trace(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write requests as `read_trace` reads them; lists may be arrays."""
    plain = lambda value: value.tolist() if hasattr(value, "tolist") else value
    lines = [json.dumps({key: plain(value) for key, value in row.items()}, separators=(",", ":")) for row in rows]
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _lines(path: str | os.PathLike[str]) -> Iterable[tuple[int, dict[str, Any]]]:
    name = repr(os.fspath(path))
    try:
        raw = Path(path).read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(
            f"trace {name} cannot be read ({reason}); give a file of JSON lines, as it is or in gzip"
        ) from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"trace {name}, line {number}, is not JSON ({error}); give one request a line") from error
        if not isinstance(entry, dict):
            raise TraceError(f"trace {name}, line {number}, is no table of names; give one request a line")
        yield number, entry


def _gains(name: str, number: int, drafter: str, given: list[Any]) -> np.ndarray:
    whole = all(type(each) is int and 1 <= each <= _MOST_GAINED for each in given)
    if not whole:
        raise TraceError(
            f"trace {name}, line {number}: {drafter} is no list of whole numbers from 1 (the target's own token) to "
            f"{_MOST_GAINED}"
        )
    return np.array(given, np.int16)


def _whole(name: str, value: Any, key: str) -> int:
    if type(value) is not int or value < 0:
        raise TraceError(f"trace {name} has {key} {value!r}; it must be a whole number from 0")
    return value


#: Most drafted tokens for which a rate is solved.
LONGEST_DRAFT = 128

#: Halvings of [0, 1], more than a float64 has bits.
_HALVINGS = 56


@flax.struct.dataclass
class Acceptance:
    """Acceptance of a draft; each field is a leaf in [0, 1], or None where a study has no draft of that kind.

    Numbers of a trace may lie outside: see `tokens_to_rates`.
    """

    #: Chains: P(position accepted | all before it accepted), "*b position".
    conditional: Leaf = fields.number(fields.FINITE, default=None)
    #: Trees: P(node accepted | its parent accepted), "*b node"; those of siblings sum to at most 1.
    node: Leaf = fields.number(fields.FINITE, default=None)

    @classmethod
    def from_mean_length(cls, tokens_per_cycle: Number, draft_length: float) -> Acceptance:
        """The rate, equal at every position, that gives so many tokens per cycle; see `iid_acceptance`.

        Args:
            tokens_per_cycle: "*b", in [1, draft_length + 1]: the mean acceptance length of engines, bonus token included.
            draft_length: static; of the cycles that were counted, fractions too where lengths differ.
        Raises:
            ValueError: a draft length below 1 or beyond `LONGEST_DRAFT`; tokens that no such draft gains.
        """
        fields.check_number("draft_length", draft_length, fields.FINITE)
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
        return value - (tokens - 1.0), slope  # exact where hardly any token is accepted

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
