"""Accuracy of networks as schemes store them: `python -m experiments.quantization_quality [--model M] [--json FILE]
[--out FOLDER]`.

A minute or two on two cores. Of every scheme that changes the target, and of float16 attention: bits per byte and agreement of
the likeliest next token with the float network on held-out text, and the share of arithmetic problems that the arithmetic
network solves, with bootstrap intervals over windows and problems. Pairs are compared over the same ones.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from experiments.command_line import add_outputs, carry_out
from experiments.quantization_quality.report import show
from experiments.quantization_quality.run import Settings, measure
from jaxspec.runs.progress import Reporter


def plot(result: dict[str, Any], folder: Path) -> None:
    """The figure of all variants, as PNG."""
    from experiments.quantization_quality.figures import quality_figure

    figure = quality_figure(result)
    assert figure is not None
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "quantization_quality.png", dpi=150)


def main() -> None:
    """Measure, show, write."""
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m experiments.quantization_quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="embedded", help="name, directory or container; default %(default)s")
    for name, what in (("windows", "of held-out text"), ("tokens", "of a window"), ("problems", "of arithmetic")):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name), help=f"{what}; default %(default)s")
    parser.add_argument(
        "--text", default=default.text, help="a file whose second half is held out; default %(default)s"
    )
    parser.add_argument("--seed", type=int, default=default.seed)
    add_outputs(parser)
    args = parser.parse_args()
    fields = {field.name: getattr(args, field.name) for field in dataclasses.fields(Settings)}
    for name, least in (("windows", 1), ("tokens", 1), ("problems", 0), ("seed", 0)):
        if fields[name] < least:
            parser.error(f"--{name} is {fields[name]}; allowed is {least} or more")
    carry_out(parser, args, lambda: measure(args.model, Settings(**fields), Reporter()), show, plot)


if __name__ == "__main__":
    main()
