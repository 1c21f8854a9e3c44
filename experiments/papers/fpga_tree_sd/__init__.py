"""Tree speculation on FPGAs, Tables I to IV and Fig. 2 and 4: `python -m experiments.papers.fpga_tree_sd`. Half a minute.

Differs from the paper in: its cycle-accurate simulator of FlightLLM is replaced by the catalog's four boards, whose two numbers
for memory were calibrated on Table I's autoregressive rows. Five more numbers are fitted here, to Table I alone: three of the
AAT law and its change with context, and the array's clock. AAT curves are not measured, so that other tasks, models and
tree searches are priced with what the text says about them, which is noted in every row.
"""
