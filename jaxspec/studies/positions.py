"""Whether texts are as long as a network can take, and as it is made for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hwmodels import Architecture
from jaxspec.errors import InputError
from jaxspec.models.beside_weights import json_beside
from jaxspec.models.config import DecoderConfig
from jaxspec.models.embedded import check_model, model_place
from jaxspec.models.rope_scaling import LongRopeScaling
from jaxspec.models.text_config import text_config
from jaxspec.speculate.drafts.making import kind_of

__all__ = ["TextLength", "check_positions", "contexts_within"]


def check_positions(name: str, architecture: Architecture, tokens: float) -> None:
    """Refuse to price a text that a network with a table of positions cannot take.

    Args:
        name: what the network is called, for messages.
        tokens: of the longest text.
    Raises:
        InputError: the table has fewer rows.
    """
    rows = float(architecture.learned_positions)
    if rows and tokens > rows:
        raise InputError(
            f"architecture {name!r} has a table of {rows:,.0f} positions, and a text of {tokens:,.0f} tokens is to be priced; "
            "give a shorter context, prompt or output, or a network without such a table"
        )


def contexts_within(architecture: Architecture, contexts: Iterable[int]) -> tuple[int, ...]:
    """Those contexts behind which a network still has a position for the token of a step, rising, each once.

    Args:
        contexts: cached tokens.
    """
    rows = float(architecture.learned_positions)
    return tuple(sorted({context for context in contexts if not rows or context < rows}))


@dataclasses.dataclass(frozen=True)
class TextLength:
    """The longest text that a run decodes with a network.

    Attributes:
        prompt: tokens of the longest prompt. behind: tokens behind it at most.
        called: what those behind are.
        advice: how to need fewer.
    """

    prompt: int
    behind: int
    called: str
    advice: str

    @property
    def tokens(self) -> int:
        """Of the whole text."""
        return self.prompt + self.behind

    def check(self, model: str, network: DecoderConfig) -> None:
        """Learned positions end somewhere, and beyond their end a table's last row would be read without a word.

        Raises:
            InputError: the text is longer.
        """
        learned = network.learned_positions
        if learned is not None and learned.positions < self.tokens:
            raise InputError(f"{model} has {learned.positions} positions; {self} need {self.tokens}: {self.advice}")

    def beyond_training(self, model: str, network: DecoderConfig) -> tuple[str, ...]:
        """Notes: rotary positions do not end; what lies beyond the longest text that a network was made for is decoded, and
        told. So is a text that grows past the length where LongRoPE changes its factors."""
        notes: tuple[str, ...] = ()
        scaling = network.rope_scaling
        if isinstance(scaling, LongRopeScaling) and scaling.original_max_position_embeddings < self.tokens:
            original = scaling.original_max_position_embeddings
            notes = (
                f"{model} rotates by other factors beyond {original} tokens (LongRoPE): a text that grows past them keeps the "
                "keys in its cache as they are, where generate of transformers computes them anew, so that words may differ",
            )
        stated = text_config(json_beside(model_place(model), "config.json")).get("max_position_embeddings")
        if network.learned_positions is not None or type(stated) is not int or stated >= self.tokens:
            return notes
        return (
            *notes,
            f"{model} is made for texts of {stated} tokens; {self} take {self.tokens}, and beyond {stated} it may guess "
            "poorly",
        )

    def of_draft(self, name: str) -> tuple[str, ...]:
        """`check` and `beyond_training` of a draft by its name, which reads the same text where it is a network of its own.

        Raises:
            InputError: the text is longer, or the draft cannot be read.
        """
        if kind_of(name).directory != "network":
            return ()
        network = check_model(name)
        self.check(name, network)
        return self.beyond_training(name, network)

    def __str__(self) -> str:
        """In words, as a plural."""
        return f"prompts of up to {self.prompt} tokens with {self.behind} {self.called} behind them"
