"""The training of the embedded network: `python -m experiments.train_embedded`."""
