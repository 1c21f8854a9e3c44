"""Problems to begin with, printed by `jaxspec codesign --example`."""

__all__ = ["EXAMPLES"]

_NPU = """\
# jaxspec codesign problem.toml: an NPU whose DMA decodes unary exponents, and the draft that it runs.
architecture = "llama-3.1-8b"
device = "cassandra-npu"
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
