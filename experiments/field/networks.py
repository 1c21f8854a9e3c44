"""What the names in published measurements mean to the cost model: networks and drafts."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from pathlib import Path
from typing import NamedTuple

from experiments.field.rows import FieldRow
from experiments.field.stored import WORDS, NotPricedError, stored
from hwmodels import Architecture, DraftCost, catalog, parameters
from hwmodels.catalog import EntryError, UnknownNameError
from hwmodels.catalog.entries import shown
from hwmodels.speculation.draft_cost import EAGLE3_VOCABULARY, block_head, eagle_head, medusa_head, multi_token_head

__all__ = ["A_NETWORK", "draft_of", "is_block", "named_architecture", "shape_notes"]

#: What a draft is called that is a network of its own.
A_NETWORK = "a small network"

#: What names carry beside the network's: training, packing, files.
_ENDINGS = re.compile(
    r"-(instruct|chat|it|base|coder|thinking|preview|distill|vl|hf|v0\.[0-9]|v1\.[0-9]|bf16|f16|fp16|fp8|nvfp4|mxfp4|awq|gptq|"
    r"gguf|mlx|exl[23]|mtp|dwq|qat|autoround|bnb|dynamic|[3-8]-?bit|int4|int8|w4a16|w8a8|(?:ud-)?i?q[1-8](?:-[0-9a-z]+){1,2}|"
    r"[0-9]{4})(?=-|$)"
)
_BEGINNINGS = re.compile(r"^(meta-|nvidia-|redhatai-|pard-)")

#: The size that a name states, in billions or millions of parameters, and words of names that are no dense network of it.
_SIZE = re.compile(r"(?<![^-])([0-9]+(?:\.[0-9]+)?)(b|m)(?![^-])")
_NOT_DENSE = re.compile(r"-a[0-9.]+b|moe|[0-9]x[0-9]|assistant|eagle|medusa|flash|nano|speculat")

#: How much smaller or larger a network may be than the one whose shapes it lends.
_LENDS_WITHIN = 2.0


class _Named(NamedTuple):
    architecture: Architecture
    note: str = ""


def named_architecture(name: str) -> Architecture:
    """The shapes of a network by the name that papers and logs use, or of a config.json by its path.

    A dense network that the catalog lacks and whose name states its size has those of the catalog's nearest one, with as many
    layers as that size needs; `shape_notes` says so.

    Raises:
        NotPricedError: the catalog holds none of that name, and it states no size of a dense network.
    """
    return _named(name).architecture


def shape_notes(*names: str) -> list[str]:
    """What is not known of the shapes of networks that have an architecture, sentences for a reader."""
    return [note for name in names if (note := _named(name).note)]


def _named(name: str) -> _Named:
    if name.endswith(".json") and os.path.isfile(name):  # `Path.is_file` raises on names too long for one
        try:
            return _Named(catalog.architecture_from_config_file(Path(name)))
        except EntryError as error:
            raise NotPricedError(str(error)) from error
    slug = _slug(name)
    try:
        return _Named(catalog.architecture(slug))
    except UnknownNameError:
        sizes = _SIZE.findall(slug)
        lent = None if len(sizes) != 1 or _NOT_DENSE.search(slug) else _lent_shapes(*sizes[0])
        if lent is None:
            raise NotPricedError(f"the catalog has no architecture {shown(slug)}") from None
        like, architecture = lent
        note = f"the catalog has no architecture {shown(slug)}: shapes of {like}, with as many layers as its size needs"
        return _Named(architecture, note)


def _slug(name: str) -> str:
    """A network's name as the catalog writes it."""
    slug = name.strip().lower().rsplit("/", 1)[-1].split(" (")[0].replace("_", "-").replace(" ", "-")
    slug = re.sub(r"^deepseek-r1-distill-(?=qwen|llama)", "", slug).replace("distill-qwen-", "qwen2.5-")
    slug = re.sub(r"^qwen-(?=[0-9.]+b)", "qwen2.5-", slug)
    slug = re.sub(r"^(qwen)-(?=[23])|^(llama|gemma|phi)(?=[1-4])", lambda found: found[1] or f"{found[2]}-", slug)
    slug = _BEGINNINGS.sub("", slug.removesuffix(".gguf"))
    while (shorter := _ENDINGS.sub("", slug)) != slug:
        slug = shorter
    for pattern, same in WORDS["networks"]:
        if (found := re.fullmatch(pattern, slug)) is not None:
            return found.expand(same)
    return slug


@functools.cache
def _dense_networks() -> dict[str, tuple[Architecture, float, float]]:
    """Name -> shapes, all parameters and those of a layer, of the catalog's networks whose layers are all alike."""
    networks = {}
    for name in catalog.architecture_names():
        one = catalog.architecture(name)
        unlike = (one.num_experts, one.num_window_layers, one.num_linear_layers, one.kv_lora_rank)
        if any(map(float, unlike)) or name.startswith("embedded"):
            continue
        counts = {kind: float(count) for kind, count in parameters(one).items()}
        total = sum(counts.values())
        networks[name] = one, total, (total - counts["embed"] - counts["lm_head"]) / float(one.num_layers)
    return networks


def _lent_shapes(size: str, unit: str) -> tuple[str, Architecture] | None:
    """The dense network nearest in size, with the layers of this one; None: none is within a factor of two."""
    wanted = float(size) * (1e9 if unit == "b" else 1e6)
    name, (shapes, total, layer) = min(
        _dense_networks().items(), key=lambda one: abs(math.log(one[1][1] / max(wanted, 1.0)))
    )
    layers = float(shapes.num_layers) + (wanted - total) / layer
    if not total / _LENDS_WITHIN <= wanted <= total * _LENDS_WITHIN or layers < 1.0:
        return None
    return name, dataclasses.replace(shapes, num_layers=round(layers))


def is_block(row: FieldRow) -> bool:
    """Whether a draft proposes all of a cycle's tokens in one pass."""
    return re.search(r"\bp-?eagle|parallel|\bpard\b|dflash|dspark|\bblock", row.draft_kind.lower()) is not None


def draft_of(row: FieldRow, target: Architecture) -> DraftCost:
    """What the row's draft costs.

    Raises:
        NotPricedError: a kind of draft, or its network, is not known.
    """
    kind = row.draft_kind.lower()
    if re.search(r"n-?gram|lookup|lookahead|retrieval|suffix|jacobi|rest\b", kind):
        return DraftCost(passes=0.0, statement="a lookup, which runs no network")
    if re.search(r"medusa|hydra|mlp[ -]?speculator", kind):
        return medusa_head(target)
    if is_block(row):
        return _network_of(row, block=True) if re.search(r"\bpard\b|network|model", kind) else block_head(target)
    if re.search(r"eagle|\bhass\b", kind):
        own = EAGLE3_VOCABULARY if re.search(r"eagle-?3", kind) else target.vocab_size
        share = re.search(r"fr-?spec\s*([0-9]+)\s*%", kind)
        if share is None:
            return eagle_head(target, own)
        # FR-Spec looks up the chosen token's id alone, where EAGLE-3 heads map all logits.
        pruned = eagle_head(target, min(own, target.vocab_size) * float(share[1]) / 100.0)
        return dataclasses.replace(pruned, maps_logits=0.0)
    if re.search(r"mtp|nextn|multi-token", kind) and not re.search(r"separate|assistant", kind):
        return multi_token_head(target)
    if re.search(r"model|assist|self|\bdraft|network", kind) or _slug(row.draft) in catalog.architecture_names():
        return _network_of(row)
    raise NotPricedError(
        f"draft_kind {row.draft_kind!r} is not known; known are such as separate_model, EAGLE-1 head, EAGLE-3 head, MTP head, "
        "n-gram, DFlash block"
    )


def _network_of(row: FieldRow, *, block: bool = False) -> DraftCost:
    """A draft that is a network of its own. Raises NotPricedError."""
    if not row.draft:
        raise NotPricedError(f"draft_kind is {row.draft_kind!r}, but draft_model is empty: a network needs its name")
    is_part = "self" in row.draft_kind.lower() and _slug(row.draft) == _slug(row.target)
    if is_part and (not row.draft_precision or stored(row.draft_precision) == stored(row.target_precision)):
        raise NotPricedError(
            "its draft is a part of the target, and no column says how large: name a network, or the draft_precision of a copy"
        )
    return DraftCost(architecture=named_architecture(row.draft), statement=A_NETWORK, block=block)
