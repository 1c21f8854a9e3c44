"""Draft heads, which need a target, recognised in a config.json by names of classes and by keys."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from hwmodels.catalog.entries import EntryError
from hwmodels.networks.keys import is_off
from hwmodels.networks.settings import LARGEST_SIZE, shown
from hwmodels.tables import read_table

__all__ = ["DraftHead", "draft_head"]


@dataclasses.dataclass(frozen=True)
class DraftHead:
    """A draft head that a config.json describes.

    Attributes:
        title: what it is called.
        drafts_as: the kind of draft that it is priced as, of "eagle", "eagle3", "medusa" and "mtp"; None: it is not priced.
        sign: the key and value that give it away.
        sizes: the keys of its own layers, as a decoder's config.json has them.
        vocabulary: rows of its own LM head; None: the target's.
    """

    title: str
    drafts_as: str | None
    sign: str
    sizes: Mapping[str, Any]
    vocabulary: float | None = None

    @property
    def layers(self) -> dict[str, Any]:
        """A decoder's config.json of its layers, without the keys that mark a head."""
        signs = {key for kind in _KINDS for key in kind["keys"]} | {"architectures", "model_type"}
        return {key: value for key, value in self.sizes.items() if key not in signs and not isinstance(value, Mapping)}


_KINDS = read_table(__package__, "heads.toml")["heads"]


def draft_head(raw: Any) -> DraftHead | None:
    """The draft head that a parsed config.json describes; None: it describes no head.

    Raises:
        EntryError: a vocabulary of its own that is no whole number.
    """
    if not isinstance(raw, Mapping):
        return None
    names = {key: raw.get(key) for key in ("speculators_model_type", "model_type", "architectures")}
    listed = [
        (key, text)
        for key, value in names.items()
        for text in (value if isinstance(value, list) else [value])
        if isinstance(text, str)
    ]
    for kind in _KINDS:
        title, drafts_as = kind["title"], kind.get("drafts_as")
        named = next((f"{key} {text!r}" for key, text in listed if re.search(kind["names"], text.lower())), None)
        keyed = next((f"{key} {shown(raw[key])}" for key in kind["keys"] if not is_off(raw.get(key))), None)
        if drafts_as == "mtp" and not is_off(further := raw.get("num_nextn_predict_layers")):
            # An exported head has no other layers.
            keyed = f"num_nextn_predict_layers {shown(further)}" if further == raw.get("num_hidden_layers") else None
        if named is None and keyed is None:
            continue
        if drafts_as == "eagle" and _reads_several_layers(raw):
            title, drafts_as = "an EAGLE-3 head", "eagle3"
        inside = next(
            (own for key in ("transformer_layer_config", "model") if isinstance(own := raw.get(key), Mapping)), {}
        )
        sizes = {**raw, **inside}
        rows = next(
            (raw[key] for key in ("draft_vocab_size", "truncated_vocab_size") if raw.get(key) is not None), None
        )
        if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= LARGEST_SIZE):
            raise EntryError(f"draft_vocab_size is {shown(rows)}; it must be a whole number from 1 to {LARGEST_SIZE}")
        return DraftHead(title, drafts_as, named or keyed or "", sizes, None if rows is None else float(rows))
    return None


def _reads_several_layers(raw: Mapping[str, Any]) -> bool:
    own = raw.get("eagle_config")
    return isinstance(own, Mapping) and not is_off(own.get("use_aux_hidden_state"))
