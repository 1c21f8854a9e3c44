"""The command `jaxspec tree`."""

from jaxspec.studies.study import Study, run_directory
from jaxspec.studies.tree.config import TreeConfig

__all__ = ["TREE"]

_HELP = """Find the draft tree to verify, with how many tokens, at every context length; decode with it for proof.

\b
jaxspec tree --quick                          a compressed copy drafts; Llama 3.1 8B priced on an RTX 4090
jaxspec tree --device rtx-4090,alveo-v80 --contexts 512,4096,32768
jaxspec tree --draft ngram --search greedy    no network drafts, the text's own past does

A cycle drafts a tree of tokens, and the target verifies all of them at once. A larger tree gains more tokens per
cycle and takes longer; how much longer depends on the device and on the context. The order in which a tree grows
comes from calibration text, what each size gains from held-out text, times are predicted for --architecture on
--device. "Do not speculate" is an answer. A run directory keeps everything; the same command resumes a killed run
and reprints a finished one.

Searches: prior takes the nodes accepted most often, greedy the likeliest under independent chances by depth and
rank, width and depth fill one fixed shape level by level or branch by branch.
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
)
