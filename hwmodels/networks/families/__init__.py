"""The table of Hugging Face model families: one row each, for pricing, loading, running and exporting.

Defaults, in `defaults.json`, are those of the families' configuration classes in transformers 5; what the rows say about
biases, norms and experts is tested against the networks that transformers builds (tests/golden/make_parameter_counts.py), what
they say about running against what transformers computes (tests/golden/make_hf_golden.py).
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any

from hwmodels.networks.families.experts import EXPERTS, LATENT_DENSE
from hwmodels.networks.families.gated import GATED
from hwmodels.networks.families.layer_norm import LAYER_NORM
from hwmodels.networks.families.linear import LINEAR
from hwmodels.networks.families.priced import PRICED
from hwmodels.networks.family import Family
from hwmodels.registry import Registry

__all__ = ["FAMILIES", "family_called"]


def _accept(name: str, family: Any) -> Family:
    if not isinstance(family, Family) or family.name != name:
        raise ValueError(f"family {name!r} is {family!r:.60}; give a Family of this name")
    return family


#: Family -> what its configuration class has where a file lacks a key.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = json.loads(
    importlib.resources.files(__name__).joinpath("defaults.json").read_text(encoding="utf-8")
)

#: `model_type` of config.json -> family.
FAMILIES: Registry[Family] = Registry(
    "family",
    {
        family.name: dataclasses.replace(family, defaults={**_DEFAULTS[family.name], **family.defaults})
        for family in (*GATED, *LATENT_DENSE, *EXPERTS, *LAYER_NORM, *LINEAR, *PRICED)
    },
    _accept,
)


def family_called(model_type: Any) -> Family | None:
    """The family of a `model_type`, with the defaults of that name where it is one of `also`; None: it is in no row."""
    if not isinstance(model_type, str):
        return None
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    base = next((family for family in FAMILIES.values() if model_type in family.also), None)
    return base and dataclasses.replace(base, defaults={**base.defaults, **base.also[model_type]})
