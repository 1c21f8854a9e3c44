"""Parts of a result that are the same for every plan: what ran, what was priced, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwmodels import Footprint
from jaxspec.report.assumptions import architecture_data, device_facts
from jaxspec.results import given
from jaxspec.results.network_results import DecodingSettings, PricedNumber, RunningModel, WorkloadSettings
from jaxspec.studies.engine_pricing import engine_used, noted
from jaxspec.studies.feasibility import unaccepted_notes
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.measured.head import versions
from jaxspec.studies.release import release_notes
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.inputs import Checked
from jaxspec.studies.scale.result import TaskSettings

__all__ = ["head_parts", "task_part"]


def task_part(config: ScaleConfig, problems: int) -> TaskSettings:
    """What was answered."""
    return TaskSettings(
        name=config.task,
        check=config.check if config.task == "python" else None,
        score=config.score,
        judge=config.judging,
        problems=given(problems),
        samples=given(max(config.samples)),
        output_tokens=given(config.most_tokens),
    )


def head_parts(
    config: ScaleConfig,
    checked: Checked,
    device: str,
    footprints: Sequence[Footprint],
    accepted: Mapping[str, float | None],
) -> dict[str, Any]:
    """Fields of `MeasuredResult`; of several networks the names stand together, and numbers begin with a network's name.

    Args:
        accepted: see `unaccepted_notes`.
    """
    pricings, several = checked.pricings[device], len(config.model) > 1
    shapes = {
        f"{name}.{field}" if several else field: PricedNumber(**number)
        for name, architecture in config.priced.items()
        for field, number in architecture_data(architecture, pricings[name].architecture).items()
    }
    first = checked.networks[config.model[0]].config
    parameters = given(None if several else first.num_parameters())
    facts = device_facts(device, config, config)
    priced_on = next(iter(pricings.values())).device
    # Of several networks the one with experts and the one with linear attention, where one has any.
    shapes_priced = [one.architecture for one in pricings.values()]
    largest = max(shapes_priced, key=lambda shape: float(shape.num_experts))
    linear = max(shapes_priced, key=lambda shape: float(shape.num_linear_layers))
    sequences = [batch * samples for batch in (config.batch, *config.batches) for samples in (1, *config.samples)]
    fields = kernel_notes(
        priced_on,
        list(footprints),
        batches=sequences,
        architecture=largest,
        draft=linear,
        texts={
            model if name == "own" else name: float(config.context + config.most_tokens)
            for model, name in config.priced.items()
        },
    )
    found = noted(fields, priced_on, config.engine, named=device)
    return {
        "model": RunningModel(name=", ".join(config.model), parameters=parameters),
        "architecture": ", ".join(dict.fromkeys(config.priced.values())),
        "architecture_data": shapes,
        "device": device,
        **facts,
        "device_data": {name: PricedNumber(**number) for name, number in facts["device_data"].items()},
        "workload": WorkloadSettings(
            batch=given(config.batch), context_tokens=given(config.context), prompt_tokens=given(config.context)
        ),
        "decoding": DecodingSettings(
            temperature=given(config.temperature),
            top_k=given(config.top_k),
            top_p=given(config.top_p),
            prompts=given(len(checked.problems.prompts)),
            output_tokens=given(config.most_tokens),
        ),
        "scheme": config.scheme,
        "text": None if checked.text is None else checked.text.source,
        "seed": config.seed,
        "statement": f"accuracy measured on {', '.join(config.model)}, cost predicted for "
        f"{', '.join(dict.fromkeys(config.priced.values()))}; tokens are counted as the networks that ran have them",
        "versions": versions(),
        "engine": engine_used(config.engine, device),
        **found,
        "notes": [
            *(note for name in dict.fromkeys(config.priced.values()) for note in release_notes(name)),
            *checked.notes,
            *unaccepted_notes(accepted),
            *found["notes"],
        ],
    }
