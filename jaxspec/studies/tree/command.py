"""The command `jaxspec tree`."""

from jaxspec.studies.study import Study, run_directory
from jaxspec.studies.tree.config import TreeConfig

__all__ = ["TREE"]

_HELP = """Find the best draft tree for every context length.

The best tree at --context also decodes held-out prompts, as a proof.

\b
jaxspec tree --quick                          a compressed copy drafts; cost of Llama 3.1 8B on an RTX 4090
jaxspec tree --device rtx-4090,alveo-v80 --contexts 512,4096,32768
jaxspec tree --draft ngram --search greedy    a lookup in the text drafts
srun jaxspec tree --model DIR --distributed   one network on the devices of several hosts

A cycle drafts a tree of tokens, and the target verifies all of them at once. A larger tree gains more tokens per
cycle and takes longer; how much longer depends on the device and on the context. Calibration text gives the order in
which a tree grows, held-out text the gain of each size; times are predicted for --architecture on --device. "Do not
speculate" is a possible answer. A run directory keeps everything, and acceptance_trace.jsonl for --acceptance-trace
of other commands; the same command resumes an interrupted run and reprints a finished one.

Searches: prior takes the nodes accepted most often; greedy takes the most probable nodes if acceptance by depth and
rank is independent; width and depth fill one fixed shape level by level or branch by branch.
"""

#: The study of draft trees.
TREE = Study(
    name="tree",
    config=TreeConfig,
    help=_HELP,
    run="jaxspec.studies.tree.run:search_tree",
    present="jaxspec.studies.tree.report:shown",
    figures="jaxspec.studies.tree.report:figures",
    announce=lambda config: (
        f"{config.draft} drafts for {config.model}, priced as {config.architecture} on {', '.join(config.device)}"
    ),
    out=run_directory("tree"),
    meshed=True,
)
