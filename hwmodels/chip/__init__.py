"""Area, power and price of a device's die from its own sizes and a technology node.

    from hwmodels import Technology, catalog, chip_bill

    device = catalog.device("alveo-u280")
    bill = chip_bill(device, Technology(node_m=16e-9))   # or chip_bill(device), if its file has a [technology]
    bill.area_m2, bill.power_w, bill.price_usd           # "*b"; bill.area.sram, bill.power.arrays, ... are their parts

Pure functions of trees of numbers: every leaf of the device and of the technology may be swept, mapped over or
differentiated by, under `jit`, `vmap` and `grad`. Multipliers follow from the unit's sides, SRAM from its buffers,
interfaces from the memories' bandwidths. Every device of the catalog has a bill at any node; only those with a
[technology] report it by themselves."""
