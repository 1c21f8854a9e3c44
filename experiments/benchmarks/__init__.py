"""Speed and memory, beside a peer measured in the same run: `python -m experiments.benchmarks`."""
