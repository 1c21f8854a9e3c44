"""The command `jaxspec advise`."""

from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.study import Study, run_directory

__all__ = ["ADVISE"]

_HELP = """Advise whether to speculate, how, and how sure that is.

\b
jaxspec advise --device h100-sxm --engine vllm                    an EAGLE-3 head, as accepted in published runs
jaxspec advise --device h100-sxm --engine vllm --draft llama-3.2-1b --acceptance 0.8,0.74,0.7 --acceptance-cycles 2000
jaxspec advise --draft self --scheme cassandra1 --run runs/tune-0123456789ab --batch 1,8,64
jaxspec advise --device my-machine.toml --engine llama.cpp --draft qwen2.5-0.5b --architecture qwen2.5-7b

For each batch: the draft length with the highest predicted speed (0 if no draft pays), its gain with an interval, the
probability that it pays, and the time by cause. The run directory contains result.json, report.html, and settings for vLLM
(draft length by batch), SGLang and llama.cpp. No network runs.
"""

#: The study that advises engines.
ADVISE = Study(
    name="advise",
    config=AdviseConfig,
    help=_HELP,
    run="jaxspec.studies.advise.run:advise",
    present="jaxspec.studies.advise.report:shown",
    on_processor=True,
    figures="jaxspec.studies.advise.report:figures",
    announce=lambda config: f"{config.architecture} with {config.draft} on {', '.join(config.device)}",
    out=run_directory("advise"),
)
