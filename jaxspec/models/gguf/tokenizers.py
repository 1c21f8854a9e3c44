"""From a GGUF file's words to the files that a Hugging Face checkpoint has for its tokenizer, chat template and end tokens.

Source: the specification of GGUF in ggml; the rules that cut text into words are those of the released tokenizer.json files
that llama.cpp (`src/llama-vocab.cpp`) quotes for each kind.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.errors import InputError
from jaxspec.formats.shard_index import json_object

__all__ = ["check_tokenizer", "tokenizer_files", "tokenizer_metadata"]

#: Types of tokens.
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)

#: Stands for a space in SentencePiece's words.
_SPACE = "▁"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN35 = rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_CASED}{_UPPER}*{_LOWER}+|{_CASED}{_UPPER}+{_LOWER}*|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_GPT4O = rf"{_CASED}{_UPPER}*{_LOWER}+{_SHORT}?|{_CASED}{_UPPER}+{_LOWER}*{_SHORT}?|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    + _SPACES
)
_CJK = "[一-龥\u3040-ゟ゠-ヿ]+"


class _Kind(NamedTuple):
    """How byte-level BPE of one kind cuts text into words.

    Attributes:
        patterns: one after the other; what none matches is a word too.
        whole: words that are tokens are not built of merges.
        begins: a text begins with the begin-of-text token, unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    whole: bool = False
    begins: bool = False


#: Kind -> names that files have for it.
_NAMES = {
    _Kind((_GPT2,)): (
        *(
            "gpt-2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "exaone4",
            "granite-docling",
        ),
    ),
    _Kind((r"\p{N}", _GPT2)): ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    _Kind((_LLAMA3,), whole=True, begins=True): (
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    ),
    _Kind((_LLAMA3,)): ("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"),
    _Kind((_QWEN2,)): ("qwen2", "deepseek-r1-qwen", "kormo", "stablelm2", "hunyuan", "solar-open", "grok-2", "megrez"),
    _Kind((_QWEN35,)): ("qwen35",),
    _Kind((_TEKKEN,), whole=True, begins=True): ("tekken",),
    _Kind((_GPT4O,)): ("gpt-4o", "llama4", "kanana2", "minimax-m2"),
    _Kind((r"\p{N}{1,3}", _CJK, _DEEPSEEK3)): ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
    _Kind((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")): ("deepseek-coder",),
    # Files without a kind are from before there were any; llama.cpp warns of them.
    _Kind((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")): ("default",),
}

_KINDS = {name: kind for kind, names in _NAMES.items() for name in names}


def tokenizer_files(metadata: Mapping[str, Any], path: Path, vocab_size: int) -> dict[str, bytes]:
    """tokenizer.json, tokenizer_config.json and generation_config.json, as far as the metadata have what is in them.

    Args:
        path: errors call the file so.
        vocab_size: rows of the embedding.
    """
    own = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    tokens = own.get("tokens", [])
    ids = {
        name: own[f"{key}_token_id"]
        for name, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items()
        if own.get(f"{key}_token_id", vocab_size) < len(tokens)
    }
    settings = {f"{name}_token": tokens[token] for name, token in ids.items()}
    if isinstance(template := metadata.get("tokenizer.chat_template"), str):
        settings["chat_template"] = template
    ends = {own.get(f"{key}_token_id", vocab_size) for key in ("eos", "eot", "eom")}
    found: dict[str, Any] = {"tokenizer_config.json": settings}
    if ends := sorted(int(token) for token in ends if token < vocab_size):
        found["generation_config.json"] = {"eos_token_id": ends}
    if tokens and _rule(own) is not None:
        found["tokenizer.json"] = _tokenizer(own, ids)
    return {name: json.dumps(content, ensure_ascii=False).encode() for name, content in found.items()}


def check_tokenizer(metadata: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Raise InputError for a file whose tokenizer is of a kind that is not read here."""
    own = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    if not own.get("tokens"):
        raise InputError(f"{path} has no tokenizer.ggml.tokens; give a GGUF file with the words of its network")
    if _rule(own) is None:
        model, kind = own.get("model"), own.get("pre", "default")
        what, known = ("model", ["gpt2", "llama"]) if model != "gpt2" else ("pre", sorted(_KINDS))
        raise InputError(
            f"{path} has tokenizer.ggml.{what} {(model if what == 'model' else kind)!r}, whose words are not known here; "
            f"known are {', '.join(known)}: use a Hugging Face checkpoint with its tokenizer.json (without a tokenizer, "
            "load_directory in Python still runs the network on token ids)"
        )


def _rule(own: Mapping[str, Any]) -> _Kind | str | None:
    """How a file's text becomes words: of byte-level BPE its kind, "llama" for SentencePiece; None where it is not known."""
    if own.get("model") == "llama":
        return "llama"
    return _KINDS.get(own.get("pre", "default")) if own.get("model") == "gpt2" else None


def _tokenizer(own: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """The content of tokenizer.json."""
    tokens, rule = own["tokens"], _rule(own)
    kinds = own.get("token_type") or [_NORMAL] * len(tokens)
    vocab: dict[str, int] = {}
    for number, token in enumerate(tokens):
        vocab.setdefault(token, number)
    added = [
        {
            "id": number,
            "content": token,
            "special": kinds[number] == _CONTROL,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for token, number in vocab.items()
        if kinds[number] in (_CONTROL, _USER)
    ]
    form = _bytes_form(own, rule, vocab) if isinstance(rule, _Kind) else _pieces_form(own, vocab, kinds, ids)
    begins = own.get("add_bos_token", rule.begins if isinstance(rule, _Kind) else True)
    around = {"bos": begins, "eos": own.get("add_eos_token", False)}
    form["post_processor"] = _around([name for name, wanted in around.items() if wanted and name in ids], tokens, ids)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **form}


def _bytes_form(own: Mapping[str, Any], kind: _Kind, vocab: Mapping[str, int]) -> dict[str, Any]:
    """Byte-level BPE."""
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    cut = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in kind.patterns
    ]
    merges = [merge.split(" ", 1) for merge in own.get("merges", [])]
    # Of what is no word, the library tokenizers makes none either.
    model = _bpe(vocab, [pair for pair in merges if "".join(pair) in vocab], ignore_merges=kind.whole)
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*cut, levels]},
        "decoder": levels,
        "model": model,
    }


def _pieces_form(
    own: Mapping[str, Any], vocab: Mapping[str, int], kinds: Sequence[int], ids: Mapping[str, int]
) -> dict[str, Any]:
    """SentencePiece's BPE: of all pairs whose union is a word, the one of the highest score is joined first."""
    scores = own.get("scores") or [-float(number) for number in range(len(own["tokens"]))]
    pieces = sorted((number for number in vocab.values() if kinds[number] == _NORMAL), key=lambda n: (-scores[n], n))
    words = {token for token, number in vocab.items() if kinds[number] == _NORMAL}
    merges = []
    for number in pieces:
        word = own["tokens"][number]
        halves = ((word[:cut], word[cut:]) for cut in range(1, len(word)))
        merges += sorted(
            (half for half in halves if words.issuperset(half)), key=lambda half: (vocab[half[0]], vocab[half[1]])
        )
    prefixed = own.get("add_space_prefix", True)
    prefix = [{"type": "Prepend", "prepend": _SPACE}] if prefixed else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else []
    unknown = own["tokens"][ids["unk"]] if "unk" in ids else None
    replace = lambda old, new: {"type": "Replace", "pattern": {"String": old}, "content": new}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*prefix, replace(" ", _SPACE)]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [replace(_SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
        },
        "model": _bpe(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True),
    }


def _bpe(vocab: Mapping[str, int], merges: Sequence[Sequence[str]], **settings: Any) -> dict[str, Any]:
    plain = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    off = dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
    return {"type": "BPE", **plain, **off, **settings, "vocab": dict(vocab), "merges": [list(pair) for pair in merges]}


def _around(names: Sequence[str], tokens: Sequence[str], ids: Mapping[str, int]) -> dict[str, Any] | None:
    """What puts special tokens around a text: bos before, eos behind."""
    if not names:
        return None
    token = lambda name: {"SpecialToken": {"id": tokens[ids[name]], "type_id": 0}}
    text = [{"Sequence": {"id": "A", "type_id": 0}}]
    single = [*(token(n) for n in names if n == "bos"), *text, *(token(n) for n in names if n == "eos")]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            tokens[ids[name]]: {"id": tokens[ids[name]], "ids": [int(ids[name])], "tokens": [tokens[ids[name]]]}
            for name in names
        },
    }


def tokenizer_metadata(read: Callable[[str], bytes | None], path: Path, vocab_size: int) -> dict[str, Any]:
    """Metadata of a checkpoint's tokenizer, end tokens and chat template: what `tokenizer_files` reads.

    Args:
        read: content of a file beside the weights, by its name; None where there is none.
        path: errors call the checkpoint so.
        vocab_size: rows of the embedding; those without a word get one of their own.
    Raises:
        InputError: a tokenizer of a kind that GGUF files do not have.
    """
    files = {
        name: json_object(content, path / name)
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json")
        if (content := read(name)) is not None
    }
    form = files.get("tokenizer.json")
    if form is None and vocab_size != len(_LETTERS):
        return {"tokenizer.ggml.model": "none"}
    if form is None:  # bytes as they are
        model: dict[str, Any] = {"vocab": {letter: byte for byte, letter in enumerate(_LETTERS)}, "merges": [_NO_MERGE]}
        form, kind = {"model": model, "added_tokens": []}, {"model": "gpt2", "pre": "gpt-2", "add_bos_token": False}
    else:
        model, kind = form.get("model", {}), _kind(form, path)
    added = {entry["id"]: entry for entry in form.get("added_tokens", [])}
    words = {number: word for word, number in model["vocab"].items()} | {
        number: entry["content"] for number, entry in added.items()
    }
    unknown = model["vocab"].get(model.get("unk_token"))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    found: dict[str, Any] = {
        **kind,
        "tokens": [words.get(number, f"[PAD{number}]") for number in range(vocab_size)],
        "token_type": [_type(number, words, added, unknown, kind) for number in range(vocab_size)],
    }
    if kind["model"] == "gpt2":
        found["merges"] = merges
    else:
        # A pair is joined the sooner, the higher the score of what it makes.
        ranks: dict[str, int] = {}
        for rank, merge in enumerate(merges):
            ranks.setdefault(merge.replace(" ", ""), rank)
        found["scores"] = [-float(ranks.get(word, len(merges))) for word in found["tokens"]]
    numbers = {word: number for number, word in words.items()}
    found |= dict(_special(files, numbers))
    template = (
        files.get("tokenizer_config.json", {}).get("chat_template") or (read("chat_template.jinja") or b"").decode()
    )
    own = {f"tokenizer.ggml.{key}": value for key, value in found.items()}
    return own | ({"tokenizer.chat_template": template} if isinstance(template, str) and template else {})


def _letters() -> list[str]:
    """The character that stands for each byte in byte-level BPE."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(0x100, 0x200))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]


_LETTERS = _letters()

#: Where there are no merges: llama.cpp wants some; of these two letters, which no text has, none is made.
_NO_MERGE = f"{_LETTERS[0xFE]} {_LETTERS[0xFF]}"


def _type(
    number: int, words: Mapping[int, str], added: Mapping[int, Any], unknown: int | None, kind: Mapping[str, Any]
) -> int:
    if number not in words:
        return _UNUSED
    if number == unknown:
        return _UNKNOWN
    if number in added:
        return _CONTROL if added[number].get("special") else _USER
    return _BYTE if kind["model"] == "llama" and re.fullmatch("<0x[0-9A-F]{2}>", words[number]) else _NORMAL


def _special(files: Mapping[str, Mapping[str, Any]], numbers: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Ids of the tokens that mean something, as the files beside the weights name them."""
    for name, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items():
        token = files.get("tokenizer_config.json", {}).get(f"{name}_token")
        number = numbers.get(token.get("content") if isinstance(token, dict) else token)  # pyright: ignore[reportArgumentType]
        for file in ("generation_config.json", "config.json"):
            stated = files.get(file, {}).get(f"{name}_token_id")
            number = (stated[0] if isinstance(stated, list) and stated else stated) if number is None else number
        if isinstance(number, int):
            yield f"{key}_token_id", number
    ends = files.get("generation_config.json", {}).get("eos_token_id")
    if isinstance(ends, list) and len(ends) > 1:
        yield "eot_token_id", ends[1]


def _kind(form: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Model and kind of a tokenizer.json, and whether a text begins with a token of its own."""
    model, cut = form.get("model", {}), _parts(form.get("pre_tokenizer"), "pretokenizers")
    around = _parts(form.get("post_processor"), "processors")
    single = next((part["single"] for part in around if part.get("type") == "TemplateProcessing"), [{}])
    begins = {"add_bos_token": "SpecialToken" in single[0]}
    if len(single) > 1 and "SpecialToken" in single[-1]:
        begins["add_eos_token"] = True
    if model.get("type") == "BPE" and any(part.get("type") == "ByteLevel" for part in cut):
        patterns = tuple(pattern for part in cut for pattern in _patterns(part))
        for kind, names in _NAMES.items():
            if (kind.patterns, kind.whole) == (patterns, bool(model.get("ignore_merges"))):
                return {"model": "gpt2", "pre": names[0], **begins}
    elif model.get("type") == "BPE" and model.get("byte_fallback"):
        before = _parts(form.get("normalizer"), "normalizers") + cut
        prefixed = any(
            part.get("type") == "Prepend" or part.get("prepend_scheme", "never") != "never" for part in before
        )
        return {"model": "llama", "pre": "default", "add_space_prefix": prefixed, **begins}
    raise InputError(
        f"{path} has a tokenizer.json that cuts text by rules which no kind of GGUF file known here has; convert the network "
        "with llama.cpp's convert_hf_to_gguf.py, or export it as compressed-tensors"
    )


def _parts(part: Any, key: str) -> list[dict[str, Any]]:
    """The steps of a sequence, or the one that there is."""
    return [] if part is None else part.get(key, []) if part.get("type") == "Sequence" else [part]


def _patterns(part: Mapping[str, Any]) -> Iterator[str]:
    """What a step of a pre-tokenizer cuts by."""
    if part.get("type") not in ("Split", "Digits", "ByteLevel"):
        yield str(part.get("type"))
    elif part.get("type") == "Split":
        yield part.get("pattern", {}).get("Regex", "")
    elif part.get("type") == "Digits":
        yield r"\p{N}" if part.get("individual_digits") else r"\p{N}+"
    elif part.get("type") == "ByteLevel" and part.get("use_regex", True):
        yield _GPT2
