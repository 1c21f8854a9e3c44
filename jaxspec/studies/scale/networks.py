"""Networks that answer, and the one that judges: their shapes checked before any work, their weights loaded when they run."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
from jaxtyping import Int

from jaxspec.compress.schemes import find_scheme
from jaxspec.compress.weights import target_network
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import check_model, load_model, model_place
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.special_tokens import end_tokens
from jaxspec.models.stored import as_computed
from jaxspec.models.tokenizer import Tokenizer, load_tokenizer
from jaxspec.scaling.verifiers.judge import Judge
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.drafts import ReadyDraft, make_draft
from jaxspec.studies.feasibility import TextLength
from jaxspec.studies.measured.target import load_target
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.problems import Problems
from jaxspec.tuning.calibration import target_params

__all__ = ["Network", "check_judge", "check_length", "check_network", "load_judge"]

#: Stands for the end of a text: a line that is part of no function before it.
_TEXT_END = b"\n0"

#: Tokens of a vocabulary of bytes.
_BYTES = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A network that answers; its weights are read when they are first asked for.

    Attributes:
        scheme: of storage, which may change the network.
        end_tokens: its own, which end a text.
        stream, mesh: where its weights lie (see `load_target`).
    """

    name: str
    config: DecoderConfig
    tokenizer: Tokenizer
    scheme: str
    end_tokens: tuple[int, ...] = ()
    stream: bool = False
    mesh: tuple[int, int] | None = None
    _encoded: dict[bytes, np.ndarray] = dataclasses.field(default_factory=dict)  # by prompt

    @cached_property
    def loaded(self) -> LoadedModel:
        """The checkpoint, read once: drafts are made of it too."""
        return load_target(self.name, stream=self.stream, mesh=self.mesh).loaded

    @cached_property
    def params(self) -> Params:
        """Parameters to compute with."""
        stored = self.loaded.params
        return as_computed(target_network(find_scheme(self.scheme), stored) if self.changed else stored)

    @cached_property
    def drafts(self) -> dict[str, ReadyDraft]:
        """By name, those that were made of it."""
        return {}

    def drafted_by(self, draft: str, *, sharing: int = 1) -> ReadyDraft:
        """A draft, made once.

        Args:
            sharing: see `make_draft`.
        Raises:
            InputError: see `make_draft`.
        """
        if draft not in self.drafts:
            self.drafts[draft] = make_draft(draft, self.loaded, sharing=sharing)
        return self.drafts[draft]

    @property
    def changed(self) -> bool:
        """Whether the scheme makes another network of this one, and that one runs."""
        facts = SCHEME_FACTS[self.scheme]
        return facts.runs and not facts.lossless

    def encoded(self, prompt: bytes) -> Int[np.ndarray, " token"]:
        """A prompt as tokens; half a character at its beginning, as a cut leaves it, is dropped where tokens are not bytes."""
        if prompt not in self._encoded:
            text = prompt if self._of_bytes else prompt.decode(errors="ignore")
            self._encoded[prompt] = self.tokenizer.encode(text)
        return self._encoded[prompt]

    def decoded(self, tokens: Int[np.ndarray, " token"]) -> bytes:
        """Bytes that tokens behind a prompt stand for; a token of the network's own that ends a text is `_TEXT_END`."""
        over = len(tokens) > 0 and int(tokens[-1]) in self.end_tokens
        tokens = tokens[:-1] if over else tokens
        text = bytes(tokens.astype(np.uint8)) if self._of_bytes else self.tokenizer.continuation(tokens).encode()
        return text + _TEXT_END if over else text

    def stop(self, problems: Problems) -> Int[np.ndarray, " stop"]:
        """Tokens that end a sample."""
        return np.union1d(self.tokens_with(problems.end), np.array(self.end_tokens)).astype(np.int32)

    @property
    def _of_bytes(self) -> bool:
        return self.tokenizer.of_bytes

    def spent(self, problems: Problems, problem: int, tokens: Int[np.ndarray, " token"]) -> int | None:
        """Tokens of a sample up to where its answer is seen to end; None where it has no end."""
        size = problems.answer_bytes(problem, self.decoded(tokens))
        if size is None:
            return None
        if self._of_bytes:
            return min(size, len(tokens))
        # The fewest tokens whose text has the end: more never lose it.
        low, high = 1, len(tokens)
        while low < high:
            middle = (low + high) // 2
            ended = problems.answer_bytes(problem, self.decoded(tokens[:middle])) is not None
            low, high = (low, middle) if ended else (middle + 1, high)
        return low

    def tokens_with(self, characters: bytes) -> Int[np.ndarray, " token"]:
        """All tokens in which one of some bytes stands."""
        if self._of_bytes or not characters:
            return np.array(sorted(characters), np.int32)
        wanted = set(characters.decode())
        return np.array(
            [i for i in range(self.config.vocab_size) if wanted & set(self.tokenizer.decode([i]))], np.int32
        )


def check_network(name: str, config: ScaleConfig) -> Network:
    """A network without its weights.

    Raises:
        InputError: it cannot be read.
    """
    shape, place = check_model(name), model_place(name)
    tokenizer = load_tokenizer(place, vocab_size=shape.vocab_size)
    return Network(name, shape, tokenizer, config.scheme, end_tokens(place, vocab_size=shape.vocab_size))


def check_length(network: Network, config: ScaleConfig, problems: Problems) -> tuple[str, ...]:
    """What a user should know of the longest prompt with its answer.

    Raises:
        InputError: the network, or its draft, has fewer positions.
    """
    longest = max(len(network.encoded(prompt)) for prompt in problems.prompts)
    length = TextLength(longest, config.most_tokens, "of an answer", "give a smaller --output-tokens or --prompt-bytes")
    length.check(network.name, network.config)
    of_draft = () if config.acceptance_form is not None else length.of_draft(config.draft)
    return (*length.beyond_training(network.name, network.config), *of_draft)


def check_judge(name: str) -> DecoderConfig:
    """Shape of a judge.

    Raises:
        InputError: it cannot be read, or its tokens are not bytes.
    """
    shape = check_model(name)
    if shape.vocab_size != _BYTES:
        raise InputError(
            f"judge {name!r} has {shape.vocab_size} tokens; a judge reads bytes, of which there are {_BYTES}"
        )
    if not load_tokenizer(model_place(name), vocab_size=_BYTES).of_bytes:
        raise InputError(
            f"judge {name!r} has a tokenizer.json whose tokens are not the bytes 0 to 255; a judge reads bytes: give one "
            "of these"
        )
    return shape


def load_judge(name: str, problems: Problems) -> Judge:
    """A judge, which says after each step and at the end whether all is right so far."""
    loaded = load_model(name)
    marks = tuple(sorted({*problems.step_end, *problems.end}))
    return Judge(as_computed(target_params(loaded.params, exact=loaded.exact)), loaded.config, marks)
