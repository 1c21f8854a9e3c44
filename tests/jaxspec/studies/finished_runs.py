"""Finished runs written by hand, for tests of what reads them: settings, digests of inputs, and results with some numbers."""

import json

from jaxspec.compress.knobs import knobs_to_json
from jaxspec.partial_files import to_json, write_text
from jaxspec.runs import Reporter
from jaxspec.runs.inputs import input_digests
from jaxspec.settings.base import to_toml

NUMBERS = {
    "speedup_vs_bf16_ar": 2.31,
    "bits_per_weight": 3.47,
    "acceptance": {"alpha_token": 0.87, "alpha_fraction": 0.61, "conditional": [0.9, 0.84]},
    "tokens_per_cycle_counted": 3.19,
    "tokens_per_cycle_standard_error": 0.07,
}


#: Matrices of a layer of a dense network.
DENSE_KINDS = ("q", "k", "v", "o", "gate", "up", "down")


def write_run(folder, config, configurations, kinds=DENSE_KINDS):
    """A run directory.

    Args:
        configurations: name -> hard knobs, the same on every device; or device -> such a table.
        kinds: of the network's matrices.
    """
    entries = []
    for device in config.device:
        found = configurations.get(device, configurations)
        entries.append(
            {
                "device": device,
                "architecture": config.architecture,
                "scheme": config.scheme,
                "decoding": {"prompts": config.prompts},
                "configurations": {
                    name: NUMBERS | {"knobs": knobs_to_json(knobs, kinds), "draft_length": knobs.draft_length}
                    for name, knobs in found.items()
                },
            }
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.toml", to_toml(config))
    write_text(folder / "inputs.json", to_json(input_digests(config)))
    write_text(folder / "result.json", to_json(entries))
    return folder


class StopError(Exception):
    """A run that was stopped."""


class Fuse(Reporter):
    """Fails after so many bars."""

    def __init__(self, bars):
        super().__init__()
        self.left = bars

    def bar(self, description, total, **more):
        if self.left == 0:
            raise StopError
        self.left -= 1
        return super().bar(description, total, **more)


def attempts(run, bars):
    """How often a run is begun until it ends, if it stops after so many bars each time."""
    for attempt in range(1, 40):
        try:
            run(reporter=Fuse(bars))
        except StopError:
            continue
        return attempt
    raise AssertionError("it never ends")


def untimed(path):
    """The result of a run as text, without the times that it took."""
    entries = json.loads((path / "result.json").read_text())
    for entry in entries:
        entry.pop("timing_s")
    return json.dumps(entries, sort_keys=True)
