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
class Bounds(Settings):
    """Ends of a number that may change: `{ from = 16, to = 512, step = 8 }`."""

    form: ClassVar[str] = "give { from = …, to = … } and, where only multiples are possible, step = …"

    first: float = setting(dataclasses.MISSING, "Smallest value.", sizes=SIZES, key="from")
    last: float = setting(dataclasses.MISSING, "Largest value.", sizes=SIZES, key="to")
    step: float | None = setting(
        None, "Its values are multiples of this.", sizes=SIZES, unset="1 for counts and whole knobs, none for others"
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.first < self.last:
            raise InputError(f"from is {self.first:g} and to is {self.last:g}; from must be below to")
        if self.step is not None and self.step <= 0:
            raise InputError(f"step is {self.step:g}; it must be above 0")


@dataclasses.dataclass(frozen=True)
class Budgets(Settings):
    """What a design may cost at most; what is not given is not limited."""

    form: ClassVar[str] = "give area_mm2, power_w, bandwidth_gb_per_s or price"

    area_mm2: float | None = setting(None, "Area of the die.", low=0, high=1e6, above=True, unset="no limit")
    power_w: float | None = setting(
        None, "Power with everything busy at once.", low=0, high=1e7, above=True, unset="no limit"
    )
    bandwidth_gb_per_s: float | None = setting(
        None,
        "Bandwidth of all memories that are not bonded to compute units.",
        low=0,
        high=1e7,
        above=True,
        unset="no limit",
    )
    price: float | None = setting(
        None,
        "Price, in the unit of the costs; USD if the device has a [technology].",
        low=0,
        high=1e12,
        above=True,
        unset="no limit",
    )


#: Names of budgets.
BUDGETS = tuple(field.name for field in dataclasses.fields(Budgets))


@dataclasses.dataclass(frozen=True)
class Cost(Settings):
    """What a product of powers of numbers costs: `of = { elements = 1 }, area_mm2 = 0.002, source = "…"`."""

    form: ClassVar[str] = "give of (numbers with their exponents), source, and area_mm2, power_w or price per unit"

    of: dict[str, float] = setting(
        dataclasses.MISSING, "Numbers of the device, elements or die_area_m2, each with its exponent.", low=-4, high=4
    )
    source: str = setting(dataclasses.MISSING, "Where the coefficient comes from.")
    area_mm2: float = setting(0.0, "Area per unit of the product.", sizes=(1e-60, 1e30))
    power_w: float = setting(0.0, "Power per unit of the product.", sizes=(1e-60, 1e30))
    price: float = setting(0.0, "Price per unit of the product.", sizes=(1e-60, 1e30))

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
class Trees(Settings):
    """Draft trees in place of chains: how the other ranks share what the first choice misses."""

    form: ClassVar[str] = "give ranks, as [0.4, 0.15], and sizes, as [4, 8, 16]"

    ranks: list[float] = setting(
        dataclasses.MISSING,
        "Shares of the tokens that the draft's first choice misses, for its second, third, ... choice.",
        low=0,
        high=1,
    )
    sizes: list[float] = setting(dataclasses.MISSING, "Numbers of drafted nodes to choose from.", low=1, high=256)

    def __post_init__(self):
        super().__post_init__()
        if sum(self.ranks) > 1:
            raise InputError(f"ranks sum to {sum(self.ranks):g}; shares of the same tokens sum to at most 1")
        if bad := [size for size in self.sizes if size != int(size)]:
            raise InputError(f"sizes has {bad[0]:g}; numbers of nodes are whole")


@dataclasses.dataclass(frozen=True)
class Node(Settings):
    """How the device is made: area, power and price then follow from its sizes."""

    form: ClassVar[str] = "give node_m, as 7e-9 for 7 nm, and perhaps number_format, memory_interface and sram_bytes"

    node_m: float = setting(
        dataclasses.MISSING,
        "Name of the node in metres: 7 nm is 7e-9.",
        low=1e-9,
        high=1e-6,
        form="give metres, 7e-9 for 7 nm",
    )
    number_format: Literal["fp16", "int8", "fp32"] = setting("fp16", "Format that one multiplier takes.")
    memory_interface: Literal["hbm", "ddr"] = setting(
        "hbm", "To the memories: stacks of 1024 bits, or channels of 32 bits (DDR, LPDDR, GDDR)."
    )
    sram_bytes: float = setting(0.0, "On-chip memory beside that of the matrix unit.", low=0, high=1e12)


@dataclasses.dataclass(frozen=True)
class CodesignConfig(ExpertSettings, Settings):
    """One problem. `variables` and `set` are by dotted name, as in "device.memory.bandwidth_bytes_per_s".

    Raises:
        InputError: a value of the wrong kind; no variable, no budget.
    """

    variables: dict[str, Bounds] = setting(dict, "Numbers that may change.", form=Bounds.form)
    budgets: Budgets = setting(Budgets(), "Upper limits of a design.")
    costs: dict[str, Cost] = setting(dict, "Costs that the device's file does not state, by name.")
    technology: Node | None = setting(
        None,
        "Technology node, for a device whose file has none; replaces its [chip].",
        unset="as the device's file says",
    )
    acceptance: AcceptanceSource | None = setting(
        None, "Acceptance of the draft by its knobs.", unset="what was measured of the scheme's draft"
    )
    objective: Literal["tokens_per_s", "tokens_per_j"] = setting("tokens_per_s", "What to maximize.")
    architecture: str = same_as(PredictConfig, "architecture")
    device: str = setting(
        CommonConfig.device[0],
        "Device to start from: catalog name or TOML file.",
        names=catalog_devices,
        objects="device",
        known=known_device,
    )
    engine: str | None = same_as(CommonConfig, "engine")
    weight_format: str | None = same_as(CommonConfig, "weight_format")
    scheme: WidthScheme = setting(DEFAULT_SCHEME_NAME, "How weights and KV are stored.", objects="scheme")
    max_draft_length: int = same_as(PredictConfig, "max_draft_length", "Longest chain, or deepest tree, considered.")
    trees: Trees | None = setting(None, "Trees in place of chains.", unset="chains")
    set: dict[str, float] = setting(
        dict, "Numbers that differ from those of device, network and workload.", sizes=SIZES
    )
    draws: int = setting(4096, "Designs drawn at random before gradients are used.", low=1, high=1_000_000, quick=512)
    starts: int = setting(
        8, "Starting points of gradient ascents: the original design and the best drawn ones.", low=1, high=256, quick=4
    )
    iterations: int = setting(60, "Largest number of steps of an ascent.", low=1, high=10_000, quick=20)
    temperature: float = setting(
        0.05, "Smoothing of maxima and tile counts during the ascent; reported numbers have none.", low=1e-3, high=1
    )
    seed: int = same_as(CommonConfig, "seed", "Seed of the starts.")

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


_NPU = """\
# jaxspec codesign problem.toml: an NPU whose DMA decodes unary exponents, and the draft that it runs.
architecture = "llama-3.1-8b"
device = "cassandra-npu-roofline"
scheme = "cassandra1"
objective = "tokens_per_s"          # or "tokens_per_j"

[set]                               # numbers that differ from device, network and workload as they are
"workload.batch" = 16
"workload.context_tokens" = 2048
"device.chip.area_m2" = 2.674e-5    # VPU, SRAM and DMA alone: the MAC unit is a cost below

[variables]                         # what may change: knobs of the draft, numbers of the device
"draft.weight_prune" = { from = 0.3, to = 0.6 }
"draft.weight_cut_bits" = { from = 0, to = 5 }
"device.peak_flops_per_s" = { from = 4e12, to = 256e12 }
"device.memory.bandwidth_bytes_per_s" = { from = 50e9, to = 800e9 }
"device.decoder.count" = { from = 2, to = 160 }

[budgets]                           # any of area_mm2, power_w, bandwidth_gb_per_s, price
area_mm2 = 110
power_w = 24

[costs.multiply-adds]               # a coefficient times a product of numbers^exponent
of = { peak_flops_per_s = 1 }
area_mm2 = 1.0125e-12
source = "derived: 64.8 mm2 of MAC for 64 TFLOPS, Cassandra, Table V"

[costs.memory-interface]
of = { "memory.bandwidth_bytes_per_s" = 1 }
area_mm2 = 6e-11
source = "assumed: 0.06 mm2 of LPDDR5X interface per GB/s"

[acceptance]
source = "the grid of jaxspec tune on the embedded network"

[acceptance.points]                 # or run = "runs/tune-…", or alpha_token = 0.8 if no knob is a variable
weight_prune = [
  0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4,
  0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6,
]
weight_cut_bits = [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
alpha_token = [
  0.9737, 0.9734, 0.9742, 0.9732, 0.9703, 0.9598, 0.9565, 0.9571, 0.9580, 0.9550, 0.9487, 0.9358,
  0.9263, 0.9252, 0.9225, 0.9200, 0.9082, 0.8710, 0.8372, 0.8364, 0.8122, 0.8032, 0.7798, 0.7427,
]
"""


_FPGA = """\
# jaxspec codesign problem.toml: an FPGA's array for draft trees.
architecture = "llama-3.2-3b"
device = "alveo-u280"
scheme = "bit-slices"
max_draft_length = 8                # deepest tree

[set]
"workload.context_tokens" = 256

[trees]
ranks = [0.45, 0.18, 0.1]           # of what the draft's first choice misses, shares of its second, third, fourth
sizes = [2, 4, 6, 8, 12, 16, 24, 32, 48, 64]

[variables]
"draft.slice_bits" = { from = 2, to = 6 }
"device.matrix_unit.rows" = { from = 16, to = 256, step = 4 }
"device.matrix_unit.columns" = { from = 12, to = 192, step = 4 }
"device.matrix_unit.frequency_hz" = { from = 100e6, to = 450e6 }
"device.memory.bandwidth_bytes_per_s" = { from = 60e9, to = 900e9 }

[budgets]
area_mm2 = 150
power_w = 60
bandwidth_gb_per_s = 460            # of the board's HBM

[technology]                        # area and power of array and interfaces, price of the die
node_m = 16e-9
memory_interface = "hbm"

[costs.memory]                      # of which the device's file says no energy
of = { "memory.bandwidth_bytes_per_s" = 1 }
power_w = 5.6e-11
source = "assumed: HBM2, 7 pJ per bit"

[acceptance]
source = "the grid of jaxspec tune --quick on the embedded network"

[acceptance.points]
slice_bits = [2, 3, 4, 5, 6]
alpha_token = [0.8538, 0.9410, 0.9759, 0.9876, 0.9947]
"""


_MOE = """\
# jaxspec codesign problem.toml: how much hybrid-bonded (HB) memory, how much external, for a mixture of experts.
architecture = "qwen3-30b-a3b"
device = "elmoe3d-hb8"
scheme = "elastic"
placement = "bit_slices"            # upper bits in HB first
expert_skew = 0.6

[set]
"workload.batch" = 4
"workload.context_tokens" = 2048

[variables]
"draft.slice_bits" = { from = 2, to = 6 }
"draft.expert_pool" = { from = 0.0, to = 1.0 }
"device.memory.capacity_bytes" = { from = 2e9, to = 32e9 }              # HB
"device.memory.bandwidth_bytes_per_s" = { from = 2e11, to = 4e12 }
"device.spill.0.capacity_bytes" = { from = 16e9, to = 128e9 }           # external
"device.spill.0.bandwidth_bytes_per_s" = { from = 2.5e10, to = 4e11 }
"device.matrix_unit.pes" = { from = 4, to = 64 }

[budgets]
area_mm2 = 120
power_w = 45
bandwidth_gb_per_s = 200
price = 300

[costs.elements]
of = { elements = 1 }
area_mm2 = 1.2e-4
source = "assumed: a 4-bit multiply-add with its registers, 7 nm"

[costs.switching]
of = { elements = 1, "matrix_unit.frequency_hz" = 1 }
power_w = 2.5e-14
source = "assumed: 0.025 pJ per 4-bit multiply-add"

[costs.bonds]
of = { "memory.bandwidth_bytes_per_s" = 1 }
area_mm2 = 1.2e-11
source = "assumed: bonds and their drivers, 0.012 mm2 per GB/s"

[costs.bonded-memory]
of = { "memory.capacity_bytes" = 1 }
price = 1.2e-8
source = "assumed: 12 per GB"

[costs.external-memory]
of = { "spill.0.capacity_bytes" = 1 }
price = 2.5e-9
source = "assumed: 2.5 per GB"

[costs.external-interface]
of = { "spill.0.bandwidth_bytes_per_s" = 1 }
area_mm2 = 6e-11
price = 2e-10
source = "assumed: 0.06 mm2 and 0.2 of pins and board per GB/s"

[acceptance]
source = "the grid of jaxspec tune --quick on the embedded mixture"

[acceptance.points]
slice_bits = [
  2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6,
]
expert_pool = [
  0, 0.25, 0.5, 1, 0, 0.25, 0.5, 1, 0, 0.25, 0.5, 1, 0, 0.25, 0.5, 1, 0, 0.25, 0.5, 1,
]
alpha_token = [
  0.5938, 0.7396, 0.75, 0.8854, 0.625, 0.7083, 0.7812, 0.8958, 0.6562, 0.7812,
  0.8438, 0.9583, 0.6667, 0.8125, 0.8333, 0.9896, 0.6667, 0.8021, 0.8333, 1,
]
"""


#: Problem by name.
EXAMPLES = {"npu": _NPU, "fpga": _FPGA, "moe": _MOE}


_HELP = """Design draft and hardware together, under budgets.

Gradients find the fastest design within budgets of area, power, bandwidth and price.

\b
jaxspec codesign --example npu > problem.toml     or fpga, or moe
jaxspec codesign problem.toml

The problem file lists the numbers that may change, with their ranges: knobs of the draft (draft.weight_prune) and numbers of
the device (device.memory.bandwidth_bytes_per_s). It also states their costs, and budgets of area, power, bandwidth or price.
A number that costs nothing is refused. Acceptance is a law fitted to points of a table, or to a finished run of jaxspec tune.

Writes result.json, report.html and figures: the original and the proposed design, the worth of each budget, the gain from one
more mm2 or watt. Counts are rounded, and all reported numbers are evaluated exactly. The same command resumes a stopped run.
"""


#: The study of draft and hardware together.
CODESIGN = Study(
    name="codesign",
    config=CodesignConfig,
    first=("technology", "objective"),
    help=_HELP,
    run="jaxspec.studies.codesign.run:codesign",
    present="jaxspec.studies.codesign.view:shown",
    figures="jaxspec.studies.codesign.view:figures",
    announce=lambda config: (
        f"{len(config.variables)} variables of {config.scheme} for {config.architecture} on {config.device}"
    ),
    out=run_directory("codesign"),
    config_argument="PROBLEM.toml",
    examples=EXAMPLES,
)
