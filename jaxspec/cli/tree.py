"""`jaxspec tree`."""

from __future__ import annotations

import click

from jaxspec.cli.options import (
    config_option,
    force_option,
    json_option,
    out_option,
    print_notes,
    quick_option,
    resolve,
    settings_options,
    write_json,
)
from jaxspec.settings import TreeConfig


@click.command()
@settings_options(TreeConfig)
@out_option("Run directory.", "runs/tree-<hash of the settings>")
@config_option
@quick_option
@force_option()
@json_option
def tree(out, config_file, quick, force, json_file, **flags) -> None:
    """Find the draft tree to verify, with how many tokens, at every context length; decode with it for proof.

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
    config = resolve(TreeConfig, flags, config_file, quick)

    from jaxspec.report.terminal import show
    from jaxspec.runs.progress import Reporter
    from jaxspec.studies.tree.tables import tree_tables

    reporter = Reporter()
    reporter.line(
        f"jaxspec tree: {config.draft} drafts for {config.model}, priced as {config.architecture} on "
        f"{', '.join(config.device)}"
    )
    from jaxspec.studies.tree.run import search_tree

    entries, directory = search_tree(config, out=out, force=force, reporter=reporter)
    write_json(json_file, entries)
    show(*tree_tables(entries))
    print_notes(entries)
    reporter.line(f"report: {directory.path / 'report.html'}")
