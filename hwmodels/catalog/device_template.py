"""A device's file to begin with: every number that a file may give, with its unit, and every default.

Lines behind "#~ " are optional: they hold the default where it is a number, and may be used by deleting "#~ ".
"""

from __future__ import annotations

__all__ = ["DEVICE_TEMPLATE"]

#: Printed by `jaxspec devices --example`, and accepted by `--device FILE` as it is.
DEVICE_TEMPLATE = """\
# A device of your own:  jaxspec devices --example > my-chip.toml, edit it, jaxspec predict --device my-chip.toml
# Units are SI: seconds, bytes (not GB), bits, joules, hertz, watts, square metres; rates are per second.
# Each number stands as { value = ..., source = "where it comes from" }; the source may be "assumed: why", but not empty.
# Lines that begin with #~ are optional; they show what holds without them. Delete "#~ " to change one.

title = "My accelerator"
# Further names that people use.
#~ aliases = ["my-chip"]

# Dense 16-bit matrix products of the data sheet, FLOP/s; a multiply-add counts 2.
peak_flops_per_s = { value = 131e12, source = "assumed: the array below, 2 * 256 * 256 * 1e9" }
# Share of the peak that everything outside the matrix unit reaches, above 0 to 1. 1: the bare roofline.
compute_efficiency = { value = 0.8, source = "assumed: as large products do" }
# Time of launching one operator (kernel), s. A GPU: about 3e-6. 0: a network runs as one program.
operator_latency_s = { value = 1e-6, source = "assumed: a command queue on the chip" }
# Norms, softmax, activations, FLOP/s. Without it: the rate above.
#~ vector_flops_per_s = { value = 1e12, source = "example" }
# Bytes that attention moves per byte of its cache, > 0.
#~ kv_traffic_factor = { value = 1.0, source = "default: each byte is read once" }
# Several memories: "overlapped" (the default), all at once, or "serial", one after the other.
#~ schedule = "overlapped"

[memory]                       # filled first; activations stay here
# Of the data sheet, byte/s.
bandwidth_bytes_per_s = { value = 400e9, source = "assumed: 8 channels of LPDDR5X" }
# Share of it that streams reach, above 0 to 1.
efficiency = { value = 0.85, source = "assumed: as measured on other controllers" }
# byte.
capacity_bytes = { value = 64e9, source = "assumed" }
# Of moving a bit, J. Needed for energy: with a [technology] or a [chip].
energy_j_per_bit = { value = 4e-12, source = "assumed: LPDDR5X with its controller" }
# Of one access, s. Without it: no access waits.
#~ access_latency_s = { value = 1e-7, source = "example" }
# Accesses under way at once. Without it: 1.
#~ outstanding_accesses = { value = 512, source = "example" }
# Access that reaches half of the bandwidth, byte. Without it: by Little's law of the two above.
#~ given_half_bytes = { value = 5000, source = "example" }
# Each compute unit has its own banks, so that the bandwidth is that of the units in use. Default: false.
#~ coupled = false
# SRAM of the die itself: with a [technology] it takes area by its capacity, no interface, no price of its own. Default: false.
#~ on_chip = false

# More memories, each with the fields of [memory], take what the one before cannot hold; [placement] may say where what lies.
#~ [[spill]]
#~ bandwidth_bytes_per_s = { value = 50e9, source = "example" }
#~ efficiency = { value = 0.9, source = "example" }
#~ capacity_bytes = { value = 256e9, source = "example" }
#~ energy_j_per_bit = { value = 15e-12, source = "example" }
#~ [placement]
#~ kind = "in_order"            # the default: KV, dense weights, experts. Others: see the page on hardware models

# What multiplies matrices. Without this table: a roofline at peak times efficiency. Other kinds than a systolic array:
# fpga_array, vector_array, vector_tile_kernels, near_memory, host_and_near, matrix_vector_npu, calibrated_gpu (see the page on
# hardware models).
[matrix_unit]
kind = "systolic_array"
# Elements, one multiply-add per cycle each.
rows = { value = 256, source = "assumed" }
columns = { value = 256, source = "assumed" }
# Hz.
frequency_hz = { value = 1e9, source = "assumed" }
# Of one multiply-add, J.
mac_energy_j = { value = 0.72e-12, source = "Jouppi et al. 2021, Table 2: 16-bit product 0.34 pJ, 32-bit sum 0.38 pJ, 7 nm" }
# What stays in the array: "ws" weights (the default), "os" outputs, "is" inputs.
#~ dataflow = "ws"
# How loads and streams of successive tiles are counted:
#   "pipelined" (the default)  the next tile is loaded while one is used, and streams follow each other without a gap
#   "double_buffered"          the next tile is loaded while one is used, but a stream waits until the last has left
#   "huffllm"                  load, then stream, nothing overlaps: Huff-LLM's Eq. (3); slow at few tokens
#   "scale_sim"                as SCALE-Sim 3 prints: nothing overlaps, output-stationary sums leave at no cost
#~ convention = "pipelined"

[matrix_unit.input_buffer]
# Reads and writes together, byte/s.
bandwidth_bytes_per_s = { value = 512e9, source = "assumed: two bytes for each row and cycle" }
# Width of one access, byte, and its energy, J.
access_bytes = { value = 8, source = "Jouppi et al. 2021, Table 2: 64 bits" }
access_energy_j = { value = 14e-12, source = "Jouppi et al. 2021, Table 2: 1 MB at 7 nm" }
# byte; costs area and power, no time depends on it. Without it: two tiles of 16-bit operands.
#~ capacity_bytes = { value = 65536, source = "example" }
[matrix_unit.weight_buffer]
bandwidth_bytes_per_s = { value = 512e9, source = "assumed: as the input buffer" }
access_bytes = { value = 8, source = "as the input buffer" }
access_energy_j = { value = 14e-12, source = "as the input buffer" }
#~ capacity_bytes = { value = 65536, source = "example" }
[matrix_unit.output_buffer]
bandwidth_bytes_per_s = { value = 2048e9, source = "assumed: sums of four bytes, read and written" }
access_bytes = { value = 8, source = "as the input buffer" }
access_energy_j = { value = 14e-12, source = "as the input buffer" }
#~ capacity_bytes = { value = 65536, source = "example" }

# What all bytes pass between the memories and what multiplies. Without this table: it keeps up with anything.
#~ [on_chip_path]
# Of the L2 cache or scratchpad, byte/s.
#~ buffer_bytes_per_s = { value = 3e12, source = "example" }
# Of the interconnect or network on chip behind it, byte/s. Without it: as the buffer.
#~ link_bytes_per_s = { value = 3e12, source = "example" }
# Of moving a bit over these links, J. Without it: in the energy of arithmetic.
#~ link_energy_j_per_bit = { value = 1e-13, source = "example" }

# How it is made: area, power, price and energy per operation then follow from the sizes above. Without it they are not known.
[technology]
# Name of the node, m: 7 nm is 7e-9.
node_m = { value = 7e-9, source = "assumed" }
# What one multiplier takes: "fp16" (the default, also bfloat16), "int8", "fp32".
#~ number_format = "fp16"
# Interfaces to the memories: "hbm" (the default), stacks of 1024 bits, or "ddr", channels of 32 bits: DDR, LPDDR, GDDR.
memory_interface = "ddr"
# Clock of multipliers where no matrix unit says one, Hz.
#~ frequency_hz = { value = 1e9, source = "default: assumed" }
# On-chip memory beside that of the matrix unit, byte.
sram_bytes = { value = 16e6, source = "assumed: a scratchpad" }
# Share of an SRAM's area that is cells.
#~ sram_efficiency = { value = 0.70, source = "default: TSMC N3E, IEDM 2022" }
# Area of all else over that of arrays, SRAM and decoders.
#~ other_area_share = { value = 0.4925, source = "default: TPU v1, Jouppi et al. 2017, Fig. 2" }
# Drawn whatever is done, W per m2.
#~ static_w_per_m2 = { value = 84.6e3, source = "default: TPU v1, Jouppi et al. 2017, Table 2" }
# Faults of a wafer, per m2.
#~ defects_per_m2 = { value = 900.0, source = "default: TSMC on 7 nm, 2019" }

# Decoders of compressed weights. Without this table: decompressing costs nothing, which is optimistic.
#~ [decoder]
#~ kind = "unary"               # or "mx", "huffman_cam", "lut"
# Where values become 16 bits wide: "dma" (the default), before the buffer on the chip; "l2", between buffer and links;
# "array_edge", at the compute unit, behind both. What an [on_chip_path] carries depends on it.
#~ place = "dma"
#~ frequency_hz = { value = 1e9, source = "example" }
# Values that one unit puts out per cycle. Only huffman_cam has its own: 1.
#~ symbols_per_cycle = { value = 12.8, source = "example: Cassandra, sec. VI-D" }
# Coded bits that one unit parses per cycle. Without it: no limit.
#~ code_bits_per_cycle = { value = 64, source = "example" }
# byte of a decoded value; units; cycles until a value is there.
#~ symbol_bytes = { value = 2.0, source = "default" }
#~ count = { value = 1.0, source = "default" }
#~ latency_cycles = { value = 0.0, source = "default" }
# Of one unit: area, m2, and power, W, or energy of a value, J. Without them, by [technology]: Cassandra's, scaled to the node.
#~ area_m2 = { value = 4.4e-8, source = "example: Cassandra, Table V" }
#~ power_w = { value = 6.6e-3, source = "example: Cassandra, Table V" }
#~ symbol_energy_j = { value = 0.0, source = "default" }

# How compressed tensors lie in memory: blocks of which a superblock is loaded as a whole. Without this table: no padding.
#~ [superblocks]
#~ blocks_per_superblock = { value = 16, source = "example" }
# byte.
#~ block_bytes = { value = 128.0, source = "default" }

# Kernels that take instructions for each row of a product beyond the first. Without this table: a row takes what the unit says.
#~ [extra_rows]
# Per weight and row; an instruction takes as long as a multiply-add at vector_flops_per_s.
#~ instructions = { value = 3, source = "example" }
# Rows from which on kernels use tiles, and a further one adds nothing.
#~ until = { value = 16.0, source = "default" }

# Encoders of new keys and values, where these are stored compressed. Without this table: encoding takes nothing.
#~ [encoder]
#~ frequency_hz = { value = 1e9, source = "example" }
# Values that one unit takes in per cycle.
#~ values_per_cycle = { value = 4, source = "example" }
# Units; cycles from a token's last value to its last coded bit.
#~ count = { value = 1.0, source = "default" }
#~ latency_cycles = { value = 0.0, source = "default" }
# Of one unit: area, m2, and power, W, or energy of a value, J. Needed with a [technology] or a [chip].
#~ area_m2 = { value = 8e-8, source = "example: Cassandra, Table V" }
#~ power_w = { value = 0.017, source = "example: Cassandra, Table V" }
#~ value_energy_j = { value = 0.0, source = "default" }

# Instead of [technology], where the numbers are known: delete that table, and "#= " here.
#= [chip]
#= energy_j_per_flop = { value = 0.36e-12, source = "example" }     # of arithmetic with its on-chip traffic, J
#= static_power_w = { value = 5, source = "example" }               # drawn whatever is done, W
#= area_m2 = { value = 9e-5, source = "example" }                   # of the die without decoders and elements. Else not known
#= element_area_m2 = { value = 3.4e-10, source = "example" }        # of one element of the matrix unit. Else not known
"""
