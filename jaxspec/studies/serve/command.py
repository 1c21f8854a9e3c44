"""The command `jaxspec serve`."""

from jaxspec.studies.serve.config import ServeConfig
from jaxspec.studies.study import Plot, Study, run_directory

__all__ = ["SERVE"]

_HELP = """Serve requests that arrive at random: throughput against latency with and without speculation, and where they cross.

\b
jaxspec serve --device h100-sxm --draft-architecture llama-3.2-1b --acceptance 0.7
jaxspec serve --device h100-sxm --rates 1,2,4,8,16 --prompt-tokens 1024 --output-tokens 256
jaxspec serve --trace requests.csv --plot serve.png

Requests come by a Poisson process at each rate, or as a trace says, a CSV with the columns arrival_s, prompt_tokens and
output_tokens. The engine batches continuously: a request takes a free slot as soon as its keys and values fit, its prompt is
processed in chunks beside decoding. Every step is priced as `jaxspec predict` prices it, at its batch, contexts and chunk.

Three ways to decode are compared: no draft, a draft of fixed length, and the length that is best for the batch at hand.
"A draft pays at no rate" is an answer. A run directory keeps result.json and one page; the same command reprints them.
"""

#: The study of requests that arrive.
SERVE = Study(
    name="serve",
    config=ServeConfig,
    help=_HELP,
    run="jaxspec.studies.serve.run:serve",
    present="jaxspec.studies.serve.report:shown",
    figures="jaxspec.studies.serve.figures:figures",
    announce=lambda config: f"{config.architecture} on {', '.join(config.device)}",
    out=run_directory("serve"),
    plot=Plot("Write a figure: throughput against latency.", "jaxspec.studies.serve.figures:plot"),
)
