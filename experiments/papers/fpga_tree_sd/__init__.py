"""Tree speculation on FPGAs, Tables I to IV and Fig. 2 and 4: `python -m experiments.reproduce fpga_tree_sd`."""
