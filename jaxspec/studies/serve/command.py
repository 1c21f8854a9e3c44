"""The command `jaxspec serve`."""

from jaxspec.studies.serve.config import ServeConfig
from jaxspec.studies.study import Plot, Study, run_directory

__all__ = ["SERVE"]

_HELP = """Simulate a server with and without speculation.

Reports throughput and latency, and up to which load a draft pays.

\b
jaxspec serve --device h100-sxm --draft-architecture llama-3.2-1b --acceptance 0.7
jaxspec serve --device h100-sxm --rates 1,2,4,8,16 --prompt-tokens 1024 --output-tokens 256
jaxspec serve --trace requests.csv --plot serve.png

Requests arrive by a Poisson process at each rate, or as in a trace (a CSV with the columns arrival_s, prompt_tokens and
output_tokens). The engine batches continuously: a request takes a free slot as soon as its keys and values fit, and its prompt
is processed in chunks during decoding. Every step is priced as in `jaxspec predict`, at its batch, contexts and chunk.

Three ways to decode are compared: no draft, a draft of fixed length, and the length that is best for the current batch. The
rate from which on the draft slows requests down is reported. "A draft pays at no rate" is a possible answer. The run directory
contains result.json and report.html; the same command reprints them.
"""

#: The study of requests that arrive.
SERVE = Study(
    name="serve",
    config=ServeConfig,
    help=_HELP,
    run="jaxspec.studies.serve.run:serve",
    present="jaxspec.studies.serve.report:shown",
    on_processor=True,
    figures="jaxspec.studies.serve.figures:figures",
    announce=lambda config: f"{config.architecture} on {', '.join(config.device)}",
    out=run_directory("serve"),
    plot=Plot("Write a figure: throughput against latency.", "jaxspec.studies.serve.figures:plot"),
)
