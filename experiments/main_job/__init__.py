"""What the main job must reach, measured: `python -m experiments.main_job`."""
