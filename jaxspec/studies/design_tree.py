"""The numbers of a design point as one tree, whose leaves sweeps and co-design name, and what each of them must be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from hwmodels import Architecture, Case, Device, DraftCost, EngineTerms, Footprint, Workload
from hwmodels.analysis.design_point import leaf_names
from hwmodels.catalog import device_entries
from hwmodels.catalog.architecture_entries import DESIGN_RULES
from hwmodels.chip.blocks import Technology
from hwmodels.numerics.fields import AT_LEAST_ONE, CHANCE, NOT_NEGATIVE, POSITIVE, Rule
from hwmodels.speculation.draft_cost import with_pool
from jaxspec.compress.footprint import uniform
from jaxspec.compress.footprint_table import HEAD_WIDTHS, WIDTHS, expected_widths
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.errors import InputError, hint
from jaxspec.settings import CommonConfig, build_config
from jaxspec.settings.common import ALONE, PARALLEL, ParallelSettings
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.studies.engine_pricing import placed, with_expert_bits, with_experts
from jaxspec.studies.feasibility import check_positions
from jaxspec.studies.given_acceptance import known_acceptance
from jaxspec.studies.measured.pricing import resolve_pricing

__all__ = ["CONTEXT", "case_of", "check_value", "design_tree", "footprint_of", "knob_name", "number_rules"]

#: Name of the cached tokens of a sequence.
CONTEXT = "workload.context_tokens"

#: Begins the name of a knob of the draft.
_DRAFT = "draft."

#: Names are long and alike: less similarity than in the catalog is a slip here.
_NEAR = 0.5

#: Beginnings of names of numbers that no result of a design point depends on, with the reason.
_UNREAD = {
    "workload.prompt_tokens": "no prompt is processed",
    "engine.prompt_weight_s": "no prompt is processed",
    "device.matrix_unit.prefill.": "no prompt is processed",
    "device.group.draft_tensor_parallel": "the draft is a part of the target, and is shared as it is",
    "engine.lookup_": "the draft is a part of the target, and is no lookup",
    "engine.mapped_pass_s": "the draft is a part of the target, and has no vocabulary of its own",
    "device.group.link.reduce_scatter.": "no step scatters sums over devices",
}

_WIDTH = Rule("more than 0 to 64 bits", lambda value: 0 < value <= 64)


def knob_name(name: str, scheme: Scheme) -> str | None:
    """The knob of a scheme that "draft.weight_prune" names; None: it names none."""
    knob = name.removeprefix(_DRAFT)
    return knob if name.startswith(_DRAFT) and any(spec.name == knob for spec in scheme.knob_specs) else None


def design_tree(
    config: Any,
    architecture: str,
    device: str,
    *,
    parallel: ParallelSettings = ALONE,
    together: bool = False,
    technology: Technology | None = None,
) -> dict[str, Any]:
    """Acceptance, architecture, device, draft (its knobs), engine, footprint, routing and workload, with the numbers of `set`.

    Args:
        config: settings with `engine`, `weight_format`, `scheme` and `set` (numbers by name that differ), and those of experts.
        parallel: how several devices share the work.
        together: make a group of a single device too, so that its numbers can be varied.
        technology: in place of what the device says of its area and energy; None: as it says.
    Raises:
        InputError: an unknown name, or a number of `set` that breaks its rule.
    """
    own = {name: getattr(parallel, name) for name in PARALLEL}
    given = {"architecture": architecture, "engine": config.engine, "weight_format": config.weight_format, **own}
    common = build_config(CommonConfig, {name: value for name, value in given.items() if value is not None})
    pricing = placed(resolve_pricing(common, device, None, together=together), config, device)
    if technology is not None:
        made = dataclasses.replace(pricing.device, technology=technology, chip=None)
        pricing = dataclasses.replace(pricing, device=made)
    scheme = find_scheme(config.scheme)
    knobs = knob_defaults(scheme)
    share = knobs.get(EXPERT_POOL.name, 1.0)
    case = with_experts(pricing, config, architecture, share)
    rules = number_rules(pricing.architecture, pricing.device, scheme)
    for name, value in config.set.items():
        check_value(f"set.{name}", value, rules, device)
    knobs = {knob: config.set.get(f"{_DRAFT}{knob}", value) for knob, value in knobs.items()}
    draft = {name: value for name, value in knobs.items() if name != EXPERT_POOL.name}
    if not case.pool_fits:
        draft[EXPERT_POOL.name] = share if float(case.architecture.num_experts) else None
    base = {
        "acceptance": {"alpha_token": known_acceptance(SELF, config.scheme).alpha_token},
        "architecture": pricing.architecture,
        "device": pricing.device,
        "draft": draft,
        "engine": pricing.engine,
        "footprint": expected_widths(scheme, knobs) | {"expert_bits": config.expert_bits},
        "routing": case.routing,
        "workload": pricing.workload,
    }
    check_positions(
        architecture, pricing.architecture, config.set.get(CONTEXT, float(pricing.workload.context_tokens)) + 1
    )
    leaves, treedef = jax.tree.flatten(base)
    return treedef.unflatten([config.set.get(name, leaf) for name, leaf in zip(leaf_names(base), leaves, strict=True)])


def footprint_of(bits: Mapping[str, Any]) -> Footprint:
    """The footprint with these widths for all matrices of the layers, but for experts with a width of their own, and for a
    head that is compressed."""
    footprint = uniform(**{name: bits[name] for name in (*WIDTHS, *HEAD_WIDTHS) if name in bits})
    return with_expert_bits(footprint, bits.get("expert_bits"))


def case_of(tree: Mapping[str, Any]) -> Case:
    """What a design tree prices; without a pool in its draft, that chooses among as many experts as the first memory holds."""
    share = tree["draft"].get(EXPERT_POOL.name)
    return Case(
        device=tree["device"],
        architecture=tree["architecture"],
        workload=tree["workload"],
        footprint=footprint_of(tree["footprint"]),
        draft=with_pool(DraftCost(), tree["architecture"], share),
        routing=tree["routing"],
        engine=tree["engine"],
        pool_fits=EXPERT_POOL.name not in tree["draft"],
    )


def number_rules(architecture: Architecture, device: Device, scheme: Scheme) -> dict[str, Rule]:
    """What each number of a design point must be, by dotted name. Counts may lie between whole numbers here.

    Numbers that no result depends on, whatever the others are, are not among them.
    """
    shape = {f"architecture.{name}": DESIGN_RULES[name] for name in leaf_names(architecture)}
    workload = {f"workload.{field.name}": POSITIVE for field in dataclasses.fields(Workload)}
    workload["workload.context_tokens"] = NOT_NEGATIVE
    workload["workload.batch"] = AT_LEAST_ONE
    widths = WIDTHS + HEAD_WIDTHS * scheme.facts.head
    knobs = {
        f"{_DRAFT}{spec.name}": Rule(
            f"a number from {spec.low:g} to {spec.high:g}", lambda value, spec=spec: spec.low <= value <= spec.high
        )
        for spec in scheme.knob_specs
        if spec.per != "experts"
    }
    experts = {"routing.correlation": CHANCE, "routing.independence": CHANCE, "draft.expert_pool": CHANCE}
    if not float(architecture.num_experts):
        experts = {}
    rules = (
        shape
        | workload
        | experts
        | knobs
        | {f"device.{name}": rule for name, rule in device_entries.number_rules(device).items()}
        | {f"engine.{field.name}": NOT_NEGATIVE for field in dataclasses.fields(EngineTerms)}
        | {f"footprint.{name}": _WIDTH for name in widths}
        | {"acceptance.alpha_token": CHANCE}
    )
    return {name: rule for name, rule in rules.items() if _why_unread(name) is None}


def _why_unread(name: str) -> str | None:
    """Why a number has no effect; None where it may have one."""
    return next((reason for start, reason in _UNREAD.items() if name.startswith(start)), None)


def check_value(where: str, value: float, rules: Mapping[str, Rule], device: str) -> None:
    """A number's name is one of `rules`, may have an effect, and the number satisfies its rule.

    Args:
        where: a table of the settings and the name in it, as in "axes.device.memory.efficiency".
    Raises:
        InputError: otherwise.
    """
    name = where.partition(".")[2]
    if (reason := _why_unread(name)) is not None:
        raise InputError(f"{where} would have no effect: {reason}; leave it out")
    if name not in rules:
        raise InputError(
            f"{where} is not a number of a design point on {device}{hint(name, rules, cutoff=_NEAR, list_all=False)}"
        )
    if not rules[name].holds(value):
        raise InputError(f"{where} is {value:g}; it must be {rules[name].words}")
