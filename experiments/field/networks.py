"""What the names in published measurements mean to the cost model: networks and drafts."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from experiments.field.rows import FieldRow
from experiments.field.stored import NotPricedError
from hwmodels import Architecture, DraftCost, catalog
from hwmodels.catalog import EntryError, UnknownNameError
from hwmodels.catalog.entries import shown
from hwmodels.speculation.draft_cost import EAGLE3_VOCABULARY, block_head, eagle_head, multi_token_head

__all__ = ["A_NETWORK", "draft_of", "is_block", "named_architecture"]

#: What a draft is called that is a network of its own.
A_NETWORK = "a small network"

#: Names of the same shapes in the catalog.
_SAME_SHAPES = {
    "llama-3-8b": "llama-3.1-8b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3.3-70b": "llama-3.1-70b",
    "llama-2-7b": "vicuna-7b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "glm-4.6": "glm-4.5",
    "kimi-k2.5": "kimi-k2",
    "qwq-32b": "qwen2.5-32b",
}
#: What names carry beside the network's: training, packing, files.
_ENDINGS = re.compile(
    r"-(instruct|chat|it|base|coder|thinking|hf|v0\.[0-9]|v1\.[0-9]|bf16|fp8|nvfp4|mxfp4|awq|gptq|gguf|mlx|[48]bit|int4|int8|"
    r"w4a16|w8a8|[0-9]{4})(?=-|$)"
)
_BEGINNINGS = re.compile(r"^(meta-|nvidia-|redhatai-)")


def named_architecture(name: str) -> Architecture:
    """The shapes of a network by the name that papers and logs use, or of a config.json by its path.

    Raises:
        NotPricedError: the catalog holds none of that name.
    """
    if name.endswith(".json") and os.path.isfile(name):  # `Path.is_file` raises on names too long for one
        try:
            return catalog.architecture_from_config_file(Path(name))
        except EntryError as error:
            raise NotPricedError(str(error)) from error
    slug = name.strip().lower().rsplit("/", 1)[-1].split(" (")[0].replace("_", "-").replace(" ", "-")
    slug = re.sub(r"^deepseek-r1-distill-(?=qwen|llama)", "", slug).replace("distill-qwen-", "qwen2.5-")
    slug = re.sub(r"^qwen-(?=[0-9.]+b)", "qwen2.5-", slug)
    slug = _BEGINNINGS.sub("", slug.replace("llama3", "llama-3").replace("llama2", "llama-2"))
    while (shorter := _ENDINGS.sub("", slug)) != slug:
        slug = shorter
    try:
        return catalog.architecture(_SAME_SHAPES.get(slug, slug))
    except UnknownNameError:
        raise NotPricedError(f"the catalog has no architecture {shown(slug)}") from None


def is_block(row: FieldRow) -> bool:
    """Whether a draft proposes all of a cycle's tokens in one pass."""
    return re.search(r"\bp-?eagle|parallel|medusa|hydra|dflash|dspark|\bblock", row.draft_kind.lower()) is not None


def draft_of(row: FieldRow, target: Architecture) -> DraftCost:
    """What the row's draft costs.

    Raises:
        NotPricedError: a kind of draft, or its network, is not known.
    """
    kind = row.draft_kind.lower()
    if re.search(r"n-?gram|lookup|lookahead|retrieval|suffix|rest\b", kind):
        return DraftCost(passes=0.0, statement="a lookup, which runs no network")
    if is_block(row):
        return block_head(target)
    if "eagle" in kind:
        own = EAGLE3_VOCABULARY if re.search(r"eagle-?3", kind) else target.vocab_size
        share = re.search(r"fr-?spec\s*([0-9]+)\s*%", kind)
        if share is None:
            return eagle_head(target, own)
        # FR-Spec looks up the chosen token's id alone, where EAGLE-3 heads map all logits.
        pruned = eagle_head(target, min(own, target.vocab_size) * float(share[1]) / 100.0)
        return dataclasses.replace(pruned, maps_logits=0.0)
    if "mtp" in kind and not re.search(r"separate|assistant", kind):
        return multi_token_head(target)
    if re.search(r"model|assist|self", kind):
        if not row.draft:
            raise NotPricedError(
                f"draft_kind is {row.draft_kind!r}, but draft_model is empty: a network needs its name"
            )
        return DraftCost(architecture=named_architecture(row.draft), statement=A_NETWORK)
    raise NotPricedError(
        f"draft_kind {row.draft_kind!r} is not known; known are such as separate_model, EAGLE-1 head, EAGLE-3 head, MTP head, "
        "n-gram, DFlash block"
    )
