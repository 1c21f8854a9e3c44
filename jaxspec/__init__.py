"""jaxspec: which draft to build for speculative decoding of a language model on a given device.

The rooms: `formats` (bits), `models` (networks), `compress` (knobs to drafts), `speculate` (decoding and its acceptance),
`trees`, `tuning` (the objective and its gradient), `studies` (the commands), `settings`, `results`, `runs`, `report`, `text`,
`cli`. `hwmodels` is the hardware side.
Start with `jaxspec.studies`: `tune(TuneConfig())`.
`jaxspec.load` opens a network: the embedded one, a Hugging Face directory, or a container.
"""

from jaxspec.opening import load

__all__ = ["load"]
