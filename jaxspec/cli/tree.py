"""`jaxspec tree`."""

from __future__ import annotations

import click

from jaxspec.cli.options import network_options, pricing_options, print_notes, resolve, write_json


@click.command()
@pricing_options
@network_options
@click.option(
    "--draft", help="self (default), ngram, embedded-head, embedded-small, or a directory of a network or head."
)
@click.option("--weight-prune", type=float, help="Draft self: share of each row's weights that it does not read.")
@click.option("--weight-cut-bits", type=float, help="Draft self: mantissa bits of a weight that it does not read.")
@click.option("--kv-prune", type=float, help="The same of the KV cache, per token.")
@click.option("--kv-cut-bits", type=float, help="The same of the KV cache.")
@click.option("--nodes", type=int, help="Drafted tokens of the largest tree; verifying it takes one token more.")
@click.option("--depth", type=int, help="Drafted tokens below one another, at most.")
@click.option("--search", help="How trees grow: prior (default), width, depth or greedy.")
@click.option("--contexts", help="Context lengths to decide at, beside --context, separated by commas.")
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
    from rich.console import Console

    from jaxspec.report.tree_tables import tree_tables
    from jaxspec.runs.config import TreeConfig
    from jaxspec.runs.progress import Reporter

    config = resolve(TreeConfig, flags, config_file, quick)
    reporter = Reporter()
    reporter.line(
        f"jaxspec tree: {config.draft} drafts for {config.model}, priced as {config.architecture} on "
        f"{', '.join(config.device)}"
    )
    from jaxspec.runs.tree_search import search_tree

    entries, directory = search_tree(config, out=out, force=force, reporter=reporter)
    write_json(json_file, entries)
    console = Console()
    for table in tree_tables(entries):
        console.print(table)
    print_notes(console, entries)
    reporter.line(f"report: {directory.path / 'report.html'}")
