"""The command `jaxspec compare`."""

from jaxspec.studies.compare.config import CompareConfig
from jaxspec.studies.study import Study, run_directory

__all__ = ["COMPARE"]

_HELP = """Compare drafts of every kind, and lossy compression without a draft, on the same prompts and the same cost model.

\b
jaxspec compare --quick                        all that fit the network; Llama 3.1 8B priced on an RTX 4090
jaxspec compare --device rtx-4090,h200 --context 32768 --batch 16
jaxspec compare --drafts ngram,layer-skip --schemes cassandra1 --lossy none
jaxspec compare --tuned runs/tune-0123456789ab

Self-drafts by every scheme that has one, a separate network, a head, layer skipping, a sparse KV cache and a lookup draft
chains. Each gets the length that is predicted to be the fastest on calibration text; tokens per cycle are then predicted and
counted on held-out prompts. Compression is priced as plain decoding of fewer bits, with its bits per byte and how often its
next token is the 16-bit network's. A scheme that changes its target is compared with that network too. "No draft pays" is an
answer. A run directory keeps everything; the same command resumes a killed run and reprints a finished one.
"""

#: The study of all ways to decode faster.
COMPARE = Study(
    name="compare",
    config=CompareConfig,
    help=_HELP,
    run="jaxspec.studies.compare.run:compare",
    present="jaxspec.studies.compare.report:shown",
    figures="jaxspec.studies.compare.report:figures",
    announce=lambda config: f"{config.model} priced as {config.architecture} on {', '.join(config.device)}",
    out=run_directory("compare"),
)
