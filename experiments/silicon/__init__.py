"""GPU kernels of the aiconfigurator-core tables: fit the model of matrix products and attention, and write the catalog."""
