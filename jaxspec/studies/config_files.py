"""What settings take from a file of a network that they name; nothing is loaded for names of the catalog."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxspec.errors import InputError
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, RELEASED

if TYPE_CHECKING:
    from hwmodels.catalog import ConfigReading, DraftHead

__all__ = ["NETWORK", "head_in_file", "kind_in_file", "own_scheme", "read_network", "reading_of"]

#: Kind of a draft that is a network of its own, as tables call it.
NETWORK = "network"


def read_network(path: str | Path) -> ConfigReading:
    """What a config.json or its folder, or a GGUF file, describes.

    Raises:
        ValueError, NotImplementedError: it cannot be read, or not be priced.
    """
    from hwmodels import catalog  # numerics, which only a file needs
    from jaxspec.models.gguf import gguf_in, is_gguf, open_gguf

    file = gguf_in(path) or path
    if not is_gguf(file):
        return catalog.read_config_file(path)
    opened = open_gguf(file)
    form = catalog.StoredForm(f"GGUF ({', '.join(sorted(opened.quantized))})", opened.weight_bits, plain="norms")
    reading = catalog.read_config(opened.config, where=str(file))
    return reading._replace(stored=form if opened.quantized else None)


def reading_of(architecture: Any) -> ConfigReading | None:
    """What a file describes; None for names of the catalog, for "own", and for files that cannot be priced.

    Args:
        architecture: catalog name or path; a file that cannot be read is refused where it is priced.
    """
    if not isinstance(architecture, str | Path) or not os.path.exists(architecture):
        return None
    try:
        return read_network(architecture)
    except (NotImplementedError, ValueError):
        return None


#: Architectures of the catalog whose release is quantized -> its form; source: `quantization_config` of their config.json.
RELEASED_FORMS = {"deepseek-v3": "fp8_block", "kimi-k2": "fp8_block", "gpt-oss-20b": "mxfp4", "gpt-oss-120b": "mxfp4"}


def own_scheme(architecture: Any, *, copied: bool) -> str:
    """The scheme of a priced network for which none is given: one that drafts, else its release's form, else 16 bits.

    Args:
        architecture: see `reading_of`. A file that states a quantized form has it in any case.
        copied: whether the draft is the target's compressed copy, which a scheme makes.
    """
    reading = reading_of(architecture)
    if reading is not None and reading.stored is not None:
        return RELEASED.name
    if copied:
        return DEFAULT_SCHEME_NAME
    return RELEASED.name if reading is None and str(architecture).strip().lower() in RELEASED_FORMS else "bf16"


def head_in_file(name: str) -> DraftHead | None:
    """The draft head that a config.json, or the one of a directory, describes; None: no head, or no file.

    Raises:
        InputError: a vocabulary of its own that is no whole number.
    """
    if not os.path.exists(name):
        return None
    from hwmodels import catalog  # numerics, which only a file needs

    try:
        head = catalog.draft_head_in_file(name)
    except catalog.EntryError as error:
        raise InputError(f"draft {name!r}: {error}") from error
    if head is None and os.path.isfile(place := Path(name) / "config.json"):
        from jaxspec.formats.shard_index import read_json_object
        from jaxspec.models.released_heads import is_eagle_head

        raw = read_json_object(place)
        if is_eagle_head(Path(name), raw):
            return catalog.DraftHead("an EAGLE head", "eagle", "tensor 'fc.weight'", raw)
    return head


def kind_in_file(name: str) -> str:
    """What a draft by name is, as engines call it: the head that a file describes, or `NETWORK`.

    Raises:
        InputError: see `head_in_file`.
    """
    head = head_in_file(name)
    return NETWORK if head is None or head.drafts_as is None else head.drafts_as
