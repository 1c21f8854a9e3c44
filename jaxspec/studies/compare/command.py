"""The command `jaxspec compare`."""

from jaxspec.studies.compare.config import CompareConfig
from jaxspec.studies.study import Study, run_directory

__all__ = ["COMPARE"]

_HELP = """Compare drafts of every kind, and lossy compression.

All use the same prompts and the same cost model.

\b
jaxspec compare --quick                        all that fit the network; cost of Llama 3.1 8B on an RTX 4090
jaxspec compare --device rtx-4090,h200-sxm --context 32768 --batch 16
jaxspec compare --drafts ngram,layer-skip --schemes cassandra1 --lossy none
jaxspec compare --tuned runs/tune-0123456789ab
srun jaxspec compare --model DIR --distributed   one network on the devices of several hosts

The drafts are self-drafts of several schemes, a separate network, a head, layer skipping, a sparse KV cache and a lookup. Each
proposes chains of the length with the highest predicted speed on calibration text; tokens per cycle are then predicted and
counted on held-out prompts. Compression is priced as plain decoding with fewer bits; its bits per byte and its agreement with
the 16-bit network's next tokens are measured. A scheme that changes its target is compared with that network too. "No draft
pays" is a possible answer. A run directory keeps everything; the same command resumes an interrupted run and reprints a
finished one.
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
    meshed=True,
)
