"""Schemes that can be priced and packed but do not run a network yet: codes of whole tensors, quantization."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from hwmodels import Footprint
from jaxspec.compress.schemes.described import Described

__all__ = ["StoredForm"]


@dataclasses.dataclass(frozen=True)
class StoredForm(Described):
    """A scheme (see `Scheme`) known by its footprint and, where there is one, by its container codec.

    Attributes:
        footprint: knobs -> expected footprint.
        of_float16: the same of networks stored in float16; None: `footprint`.
    """

    footprint: Callable[[Mapping[str, float]], Footprint] = dataclasses.field(repr=False)
    of_float16: Callable[[Mapping[str, float]], Footprint] | None = dataclasses.field(default=None, repr=False)

    def expected_footprint(self, knobs: Mapping[str, float]) -> Footprint:
        """See `Scheme.expected_footprint`."""
        own = self.of_float16 if self.stored_dtype == "float16" else None
        return (own or self.footprint)(knobs)

    def _not_run(self, *_: Any) -> NoReturn:
        raise NotImplementedError(
            f"scheme {self.name}: drafts of this form are not run on a network yet, only priced and packed"
        )

    prepare = soft = hard = target = prepare_kv = soft_kv = hard_kv = encode_kv = _not_run
