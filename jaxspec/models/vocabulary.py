"""Whether a draft and its target mean the same by every token: sizes, tokenizers by name, or the files of both."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.errors import InputError
from jaxspec.models.beside_weights import read_beside
from jaxspec.models.tokenizer import ByteTokenizer

__all__ = ["Vocabulary", "shared_vocabulary", "vocabulary_beside"]

#: The largest difference of vocabularies that llama.cpp takes; common/speculative.cpp, SPEC_VOCAB_MAX_SIZE_DIFFERENCE.
_LLAMA_CPP_DIFFERENCE = 128


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Tokens of a network.

    Attributes:
        called: for messages, as in "draft 'x'".
        size: rows of its embedding, padding among them.
        tokenizer: its name; "a/b" has the tokens of "a" and further ones behind them. None: not known.
        content: of its tokenizer.json; None: there is none at hand.
    """

    called: str
    size: int
    tokenizer: str | None = None
    content: bytes | None = None

    def __str__(self) -> str:
        """In words."""
        named = "" if self.tokenizer is None else f" (tokenizer {self.tokenizer})"
        return f"{self.called} has a vocabulary of {self.size:,}{named}"


def vocabulary_beside(called: str, size: int, place: Path) -> Vocabulary:
    """The vocabulary of a network in a directory or container: its tokenizer.json, or bytes where there is none and none is
    needed.

    Raises:
        InputError: see `read_beside`.
    """
    content = read_beside(place, "tokenizer.json")
    is_bytes = content is None and size == ByteTokenizer.vocab_size
    return Vocabulary(called, size, "bytes" if is_bytes else None, content)


def shared_vocabulary(draft: Vocabulary, target: Vocabulary) -> tuple[str, ...]:
    """What a user should know of a pair whose tokens are the same.

    Rows may differ: those behind a tokenizer's last token are padding, for which every engine has a rule of its own.

    Raises:
        InputError: tokens differ, or sizes differ and nobody knows of tokens that are the same.
    """
    advice = "a draft needs the target's tokens: give a network of the target's family, or a head made for it"
    both = f"{draft}, {target}"
    if draft.content is not None and target.content is not None:
        return (*_by_files(draft, target, advice), *_padding(draft, target))
    if draft.tokenizer is not None and target.tokenizer is not None:
        names = sorted((draft.tokenizer, target.tokenizer), key=len)
        if names[0] != names[1] and not names[1].startswith(f"{names[0]}/"):
            raise InputError(f"{both}; {advice}")
        further = (
            f"{both}: one tokenizer is the other with further tokens, which are not drafted; SGLang and llama.cpp "
            "refuse such pairs",
        )
        return (*(further if names[0] != names[1] else ()), *_padding(draft, target))
    silent = " and ".join(one.called for one in (draft, target) if one.content is None)
    if draft.size != target.size:
        raise InputError(
            f"{both}; {advice} (where one tokenizer serves both and rows are padded, put its tokenizer.json beside each "
            "config.json)"
        )
    return (
        f"vocabularies of {draft.called} and {target.called} are of equal size, {target.size:,}; whether their tokens are the "
        f"same was not compared, without a tokenizer.json of {silent}",
    )


class _Tokens(NamedTuple):
    """Of a tokenizer.json: id -> text, ids of special tokens, and how text is cut into them."""

    texts: dict[int, str]
    special: set[int]
    cutting: list[Any]


def _tokens_of(one: Vocabulary) -> _Tokens:
    try:
        document = json.loads(one.content or b"")
        model, added = document["model"], document.get("added_tokens") or []
        vocab = model["vocab"]
        pairs = vocab.items() if isinstance(vocab, dict) else ((piece[0], i) for i, piece in enumerate(vocab))
        texts = {int(i): str(text) for text, i in pairs} | {int(token["id"]): token["content"] for token in added}
        special = {int(token["id"]) for token in added if token.get("special")}
        merges = [m.split(" ", 1) if isinstance(m, str) else list(m) for m in model.get("merges") or []]
        cutting = [merges, document.get("normalizer"), document.get("pre_tokenizer")]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"tokenizer.json of {one.called} is not readable ({error!r}); fetch it again") from error
    return _Tokens({i: text for i, text in texts.items() if i < one.size}, special, cutting)


def _by_files(draft: Vocabulary, target: Vocabulary, advice: str) -> tuple[str, ...]:
    if draft.content == target.content:
        return ()
    own, wanted = _tokens_of(draft), _tokens_of(target)
    other = [i for i, text in wanted.texts.items() if own.texts.get(i, text) != text]
    shown = lambda i: f"{i} is {own.texts[i]!r} and {wanted.texts[i]!r}"
    ordinary = [i for i in other if i not in own.special or i not in wanted.special]
    if ordinary:
        raise InputError(
            f"{draft.called} and {target.called} have different tokens by their tokenizer.json: {shown(min(ordinary))} "
            f"({len(ordinary):,} of {len(wanted.texts):,} differ); {advice}"
        )
    notes = []
    if other:
        notes.append(
            f"special tokens of {draft.called} and {target.called} differ: {shown(min(other))} ({len(other):,} in all)"
        )
    if missing := sum(i not in own.texts for i in wanted.texts):
        notes.append(
            f"{missing:,} of {len(wanted.texts):,} tokens of {target.called} are none of {draft.called}'s, which never drafts "
            "them"
        )
    if own.cutting != wanted.cutting:
        notes.append(
            f"tokenizers of {draft.called} and {target.called} have the same tokens and cut text into them in different ways "
            "(merges, normalizer or pre-tokenizer): fewer tokens may be accepted"
        )
    if notes:
        notes.append("SGLang and llama.cpp refuse tokenizers that differ at all")
    return tuple(notes)


def _padding(draft: Vocabulary, target: Vocabulary) -> tuple[str, ...]:
    """What engines do where rows differ.

    Source: vLLM, SpeculativeConfig.verify_equal_vocab_size_if_draft_model (0.15) and use_heterogeneous_vocab (0.25.1); SGLang,
    StandaloneWorker._validate_vocab_compatibility (2026); transformers, universal assisted decoding (4.46).
    """
    if draft.size == target.size:
        return ()
    fits, change = abs(draft.size - target.size) <= _LLAMA_CPP_DIFFERENCE, "pad" if draft.size < target.size else "cut"
    return (
        f"{draft}, {target}: one tokenizer, whose rows are padded differently. vLLM and SGLang refuse unequal sizes: {change} "
        f"the draft's embedding and head to {target.size:,} rows, and set vocab_size of its config.json (vLLM 0.25.1 and later "
        'also takes it unchanged, drafting greedily, with "use_heterogeneous_vocab": true); llama.cpp '
        f"{'takes' if fits else 'refuses'} it, as the sizes differ by {'at most' if fits else 'more than'} "
        f"{_LLAMA_CPP_DIFFERENCE}; transformers takes it where both tokenizers are given",
    )
