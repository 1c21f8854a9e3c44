"""The training of the embedded network's draft head: `python -m experiments.train_draft_head`."""
