"""Finished runs written by hand, for tests of what reads them: settings, digests of inputs, and results with some numbers."""

from jaxspec.compress.knob_files import knobs_to_json
from jaxspec.files import to_json, write_text
from jaxspec.runs.inputs import input_digests
from jaxspec.settings.toml import to_toml

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
