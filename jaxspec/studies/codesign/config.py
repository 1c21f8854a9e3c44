"""Settings of `jaxspec codesign`: what may change and between which ends, what it costs, and what may be spent."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar, Literal

from jaxspec.errors import InputError
from jaxspec.settings.acceptance import AcceptanceSource
from jaxspec.settings.base import Settings
from jaxspec.settings.catalog_names import catalog_devices, known_device
from jaxspec.settings.common import CommonConfig, ExpertSettings
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, WidthScheme
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.study import Study, run_directory

#: Sizes of numbers other than 0: those of the catalog.
SIZES = (1e-20, 1e20)


#: The proposed device, in the run directory.
DEVICE_FILE = "proposal.toml"


#: More variables than this want another kind of search.
_MOST_VARIABLES = 40


@dataclasses.dataclass(frozen=True)
class Bounds(Settings, stated_beside=__file__):
    """Ends of a number that may change: `{ from = 16, to = 512, step = 8 }`."""

    form: ClassVar[str] = "give { from = …, to = … } and, where only multiples are possible, step = …"

    first: float = setting(dataclasses.MISSING, sizes=SIZES)
    last: float = setting(dataclasses.MISSING, sizes=SIZES)
    step: float | None = setting(None, sizes=SIZES)

    def __post_init__(self):
        super().__post_init__()
        if not self.first < self.last:
            raise InputError(f"from is {self.first:g} and to is {self.last:g}; from must be below to")
        if self.step is not None and self.step <= 0:
            raise InputError(f"step is {self.step:g}; it must be above 0")


@dataclasses.dataclass(frozen=True)
class Budgets(Settings, stated_beside=__file__):
    """What a design may cost at most; what is not given is not limited."""

    form: ClassVar[str] = "give area_mm2, power_w, bandwidth_gb_per_s or price"

    area_mm2: float | None = setting(None)
    power_w: float | None = setting(None)
    bandwidth_gb_per_s: float | None = setting(None)
    price: float | None = setting(None)


#: Names of budgets.
BUDGETS = tuple(field.name for field in dataclasses.fields(Budgets))


@dataclasses.dataclass(frozen=True)
class Cost(Settings, stated_beside=__file__):
    """What a product of powers of numbers costs: `of = { elements = 1 }, area_mm2 = 0.002, source = "…"`."""

    form: ClassVar[str] = "give of (numbers with their exponents), source, and area_mm2, power_w or price per unit"

    of: dict[str, float] = setting(dataclasses.MISSING)
    source: str = setting(dataclasses.MISSING)
    area_mm2: float = setting(0.0, sizes=(1e-60, 1e30))
    power_w: float = setting(0.0, sizes=(1e-60, 1e30))
    price: float = setting(0.0, sizes=(1e-60, 1e30))

    def __post_init__(self):
        super().__post_init__()
        if not self.of:
            raise InputError(f"of is empty; {self.form}")
        amounts = {"area_mm2": self.area_mm2, "power_w": self.power_w, "price": self.price}
        for name, amount in amounts.items():
            if amount < 0:
                raise InputError(f"{name} is {amount:g}; a cost is not negative")
        if not any(amounts.values()):
            raise InputError("area_mm2, power_w and price are all 0; give at least one")


@dataclasses.dataclass(frozen=True)
class Trees(Settings, stated_beside=__file__):
    """Draft trees in place of chains: how the other ranks share what the first choice misses."""

    form: ClassVar[str] = "give ranks, as [0.4, 0.15], and sizes, as [4, 8, 16]"

    ranks: list[float] = setting(dataclasses.MISSING)
    sizes: list[float] = setting(dataclasses.MISSING)

    def __post_init__(self):
        super().__post_init__()
        if sum(self.ranks) > 1:
            raise InputError(f"ranks sum to {sum(self.ranks):g}; shares of the same tokens sum to at most 1")
        if bad := [size for size in self.sizes if size != int(size)]:
            raise InputError(f"sizes has {bad[0]:g}; numbers of nodes are whole")


@dataclasses.dataclass(frozen=True)
class Node(Settings, stated_beside=__file__):
    """How the device is made: area, power and price then follow from its sizes."""

    form: ClassVar[str] = "give node_m, as 7e-9 for 7 nm, and perhaps number_format, memory_interface and sram_bytes"

    node_m: float = setting(dataclasses.MISSING)
    number_format: Literal["fp16", "int8", "fp32"] = setting("fp16")
    memory_interface: Literal["hbm", "ddr"] = setting("hbm")
    sram_bytes: float = setting(0.0)


@dataclasses.dataclass(frozen=True)
class CodesignConfig(ExpertSettings, Settings, stated_beside=__file__):
    """One problem. `variables` and `set` are by dotted name, as in "device.memory.bandwidth_bytes_per_s".

    Raises:
        InputError: a value of the wrong kind; no variable, no budget.
    """

    variables: dict[str, Bounds] = setting(dict)
    budgets: Budgets = setting(Budgets())
    costs: dict[str, Cost] = setting(dict)
    technology: Node | None = setting(None)
    acceptance: AcceptanceSource | None = setting(None)
    objective: Literal["tokens_per_s", "tokens_per_j"] = setting("tokens_per_s")
    architecture: str = same_as(PredictConfig, "architecture")
    device: str = setting(CommonConfig.device[0], names=catalog_devices, objects="device", known=known_device)
    engine: str | None = same_as(CommonConfig, "engine")
    weight_format: str | None = same_as(CommonConfig, "weight_format")
    scheme: WidthScheme = setting(DEFAULT_SCHEME_NAME, objects="scheme")
    max_draft_length: int = same_as(PredictConfig, "max_draft_length")
    trees: Trees | None = setting(None)
    set: dict[str, float] = setting(dict, sizes=SIZES)
    draws: int = setting(4096)
    starts: int = setting(8)
    iterations: int = setting(60)
    temperature: float = setting(0.05)
    seed: int = same_as(CommonConfig, "seed")

    def __post_init__(self):
        super().__post_init__()
        if not self.variables:
            raise InputError("variables are missing; add a table [variables] with one number to change, see --example")
        if len(self.variables) > _MOST_VARIABLES:
            raise InputError(f"{len(self.variables)} variables came; allowed are 1 to {_MOST_VARIABLES}")
        if not any(getattr(self.budgets, name) for name in BUDGETS):
            raise InputError(f"budgets are missing; add a table [budgets] with {', '.join(BUDGETS)}, one at least")
        if both := sorted({*self.variables} & {*self.set}):
            raise InputError(f"{', '.join(both)} is both a variable and set; take it out of one of them")

    @property
    def input_files(self) -> dict[str, Path]:
        """Files that it names beside network and device."""
        return {} if self.acceptance is None else self.acceptance.files


#: Problem by name.
EXAMPLES = {
    name: Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8") for name in ("npu", "fpga", "moe")
}


#: The study of draft and hardware together.
CODESIGN = Study(
    name="codesign",
    config=CodesignConfig,
    first=("technology", "objective"),
    figures="jaxspec.studies.codesign.view:figures",
    announce=lambda config: (
        f"{len(config.variables)} variables of {config.scheme} for {config.architecture} on {config.device}"
    ),
    out=run_directory("codesign"),
    config_argument="PROBLEM.toml",
    examples=EXAMPLES,
)
