"""How much memory a run of `jaxspec scale` needs, and where its networks lie."""

from __future__ import annotations

import math

from jaxspec.models.embedded import check_model
from jaxspec.scaling.sampling import PROMPT_STEP, WIDTH
from jaxspec.settings.draft_kinds import SELF
from jaxspec.studies.measured.draft_memory import COMPUTED, DraftNeed, draft_need
from jaxspec.studies.measured.memory import (
    ONE_DEVICE,
    ROOM_BYTES,
    MemoryNeed,
    MemoryPlan,
    decoding_bytes,
    network_bytes,
    plan_by,
)
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.inputs import Checked
from jaxspec.studies.scale.networks import Network

__all__ = ["plan_scale", "scale_need"]


def scale_need(
    config: ScaleConfig, checked: Checked, *, stream: bool, mesh: tuple[int, int] = ONE_DEVICE
) -> MemoryNeed:
    """An estimate from shapes and settings: all networks are held, each with its draft, and the judge; one works at a time.

    Args:
        mesh: devices along data, which share problems that are decoded with a draft and compute all samples, and along tensor.
    """
    tensor, held, work = mesh[1], 0, 0
    for network in checked.networks.values():
        drafts = (
            [] if config.draft == SELF else [draft_need(config.draft, network.config, stream=stream, tensor=tensor)]
        )
        own = network_bytes(network.config, stream=stream, tensor=tensor, model=network.name)
        held += own + sum(each.network for each in drafts)
        work = max(work, _work_bytes(config, checked, network, drafts, mesh))
    if config.judging is not None:
        held += network_bytes(check_model(config.judging), stream=False, model=config.judging)
    return MemoryNeed(held, 0, ROOM_BYTES + work)


def _work_bytes(
    config: ScaleConfig, checked: Checked, network: Network, drafts: list[DraftNeed], mesh: tuple[int, int]
) -> int:
    """Samples of one problem over one copy of its prompt's KV, or all problems with drafted tokens."""
    shape, most = network.config, config.most_tokens
    prompts = [len(network.encoded(prompt)) for prompt in checked.problems.prompts]
    places = -(-max(prompts) // PROMPT_STEP) * PROMPT_STEP
    cached = COMPUTED * shape.num_layers * shape.cached_shape.elements * 3 * (places + WIDTH * most)
    sampling = cached + COMPUTED * (shape.scored_heads * places**2 + 3 * WIDTH * shape.vocab_size)
    drafted = decoding_bytes(shape, prompts, most, drafts, mesh) if drafts and config.acceptance_form is None else 0
    return max(sampling, drafted)


def plan_scale(config: ScaleConfig, checked: Checked) -> MemoryPlan:
    """Whether the networks that answer stream, or how they are split; a judge is whole, on the first device.

    Raises:
        InputError: a mesh of more devices than there are.
    """
    kv_heads = math.gcd(*(network.config.num_kv_heads for network in checked.networks.values()))
    savers = "fewer models at a time, shorter --output-tokens or a smaller draft"
    return plan_by(config, lambda stream, mesh: scale_need(config, checked, stream=stream, mesh=mesh), kv_heads, savers)
