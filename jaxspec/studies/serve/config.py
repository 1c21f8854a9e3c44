"""Settings of `jaxspec serve`, which runs no network."""

from __future__ import annotations

import dataclasses
import itertools

from jaxspec.errors import InputError
from jaxspec.settings.acceptance import ACCEPTANCE_UNUSED, AcceptanceSettings
from jaxspec.settings.base import Unused
from jaxspec.settings.catalog_names import catalog_architectures, known_architecture
from jaxspec.settings.common import (
    DRAFT_WITHIN_TARGET,
    POOLS_UNUSED,
    ExpertSettings,
    ParallelSettings,
    refuse_own_architecture,
)
from jaxspec.settings.draft_kinds import KnobSettings, knobs_of_other_schemes
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.settings.schemes import PricedScheme
from jaxspec.studies.config_files import own_scheme
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.study import Plot, Study, run_directory

#: Drafted tokens unless a user or a log says otherwise.
DRAFTED = 4


_OF_ARRIVALS = ("requests", "prompt_tokens", "output_tokens", "prompt_variation", "output_variation")


def _increasing(rates: tuple[float, ...]) -> None:
    if any(later <= earlier for earlier, later in itertools.pairwise(rates)):
        raise InputError(
            f"rates is {','.join(f'{rate:g}' for rate in rates)}; give them in increasing order, each once"
        )


@dataclasses.dataclass(frozen=True)
class ServeConfig(ParallelSettings, ExpertSettings, KnobSettings, AcceptanceSettings, stated_beside=__file__):
    """`jaxspec serve`."""

    architecture: str = same_as(PredictConfig, "architecture")
    device: tuple[str, ...] = same_as(PredictConfig, "device")
    engine: str | None = same_as(PredictConfig, "engine")
    weight_format: str | None = same_as(PredictConfig, "weight_format")
    scheme: PricedScheme = same_as(PredictConfig, "scheme")  # noqa: RUF009
    draft_architecture: str | None = setting(
        None, names=catalog_architectures, objects="architecture", known=known_architecture
    )
    acceptance: tuple[float, ...] | None = same_as(PredictConfig, "acceptance")
    draft_length: int | None = same_as(AcceptanceSettings, "draft_length", unset=f"{DRAFTED}, or that of the log")
    rates: tuple[float, ...] | None = setting(None, check=_increasing)
    trace: str | None = setting(None)
    requests: int = setting(300)
    prompt_tokens: int = setting(512)
    output_tokens: int = setting(128)
    prompt_variation: float = setting(0.5)
    output_variation: float = setting(0.5)
    max_batch: int = setting(64)
    chunk_tokens: int = setting(512)
    seed: int = setting(0)

    unused = (
        knobs_of_other_schemes,
        *ACCEPTANCE_UNUSED[:2],
        *POOLS_UNUSED,
        Unused(
            ("pool_fits", EXPERT_POOL.name),
            lambda config: config.draft_architecture is not None,
            "the draft is a network of its own",
        ),
        DRAFT_WITHIN_TARGET._replace(
            when=lambda config: config.draft_architecture is None and DRAFT_WITHIN_TARGET.reason(config)
        ),
        Unused(_OF_ARRIVALS, lambda config: config.trace is not None, "the trace has the requests"),
    )

    @property
    def log_length_must_agree(self) -> bool:
        """It is also the length of the draft that serves, which may be another than the log's."""
        return False

    @property
    def batch(self) -> int:
        """Sequences in a full engine."""
        return self.max_batch

    @property
    def context(self) -> int:
        """Tokens of a context as it begins."""
        return self.prompt_tokens

    def __post_init__(self):
        self.settle("scheme", own_scheme(self.architecture, copied=self.draft_architecture is None))
        super().__post_init__()
        for name in (self.architecture, self.draft_architecture):
            refuse_own_architecture(str(name))
        shares = self.acceptance_cumulative
        positions = len((self.acceptance or ()) if shares is None else shares)
        if (positions > 1 or shares is not None) and positions < (self.draft_length or 0):
            raise InputError(
                f"draft_length is {self.draft_length}, but {self.acceptance_form} has {positions} positions; give one number, "
                "or as many as are drafted"
            )


#: The study of requests that arrive.
SERVE = Study(
    name="serve",
    config=ServeConfig,
    first=("draft_architecture", "rates", "trace"),
    on_processor=True,
    figures="jaxspec.studies.serve.view:figures",
    points="jaxspec.studies.serve.view:points",
    announce=lambda config: f"{config.architecture} on {', '.join(config.device)}",
    out=run_directory("serve"),
    plot=Plot("Write a figure: throughput against latency.", "jaxspec.studies.serve.view:plot"),
)
