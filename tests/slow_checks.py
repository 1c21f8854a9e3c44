"""Checks that run with `pytest -m slow` alone: those that repeat another on a further device, scheme, size or network.

One of each kind stays in every run. A test that is slow by itself carries the marker where it stands.
"""

import re

#: Regular expressions of node ids.
SLOW_CHECKS = tuple(
    map(
        re.compile,
        (
            # Notebooks: that committed outputs are those of the source is looked at in every run.
            r"^tests/test_documentation\.py::Test_(?!first_plot)\w+::test_executes$",
            # Devices of one kind: of GPUs, phones, stacked memories and boards the first stays.
            r"^tests/hwmodels/test_nothing_is_inert\.py::.*\[(h100-sxm|h200-sxm|b200-sxm|l40s|rtx-.*calibrated|rtx-pro-6000)\]$",
            r"^tests/hwmodels/test_nothing_is_inert\.py::.*\[(elmoe3d-(xpu-logic-pim|hb-xpu|logic-pim|hb8)|hexagon-v7[59])\]$",
            r"^tests/hwmodels/network/operators/test_shared_context\.py::test_sharing_never_costs_time\[h200-sxm\]$",
            # Gradients of calibrated GPUs: those of the unit and of its products stay.
            r"^tests/hwmodels/test_time_by_width\.py::test_gradient_by_bits",
            r"^tests/hwmodels/test_calibrated_devices\.py::test_elasticities_of_a_calibrated_step$",
            # Schemes of one class in other widths.
            r"^tests/jaxspec/compress/schemes/test_scheme_contract\.py::.*\[(cassandra1-coded|mxint8|any-precision|bit-slices)\]$",
            r"^tests/jaxspec/compress/schemes/test_scheme_contract\.py::.*\[(q8_0|tile-q8_0|tile-q4_0|q4_0-down8|int8-channel|mxfp8)\]$",
            r"^tests/jaxspec/studies/test_quantized_runs\.py::test_tuning_chooses_the_draft_length_alone$",
            r"^tests/jaxspec/formats/container/test_container_loading\.py::test_the_shipped_network_is_the_same_by_both_ways\[huffman\]$",
            # Mixtures: chains of one sequence, trees of several and one kind of latent attention stay.
            r"^tests/jaxspec/speculate/drafts/test_elastic_draft\.py::test_(chains_put_out_the_targets_text\[8|trees_put_out_the_targets_text\[1)\]$",
            r"^tests/jaxspec/studies/test_elastic_runs\.py::test_a_mixture_decodes_as_its_target_and_as_foretold\[3\]$",
            r"^tests/jaxspec/models/test_latent_drafts\.py::test_chains_and_trees_.*\[(deepseek_v2_grouped|gpt_oss_sinks)\]$",
            r"^tests/jaxspec/speculate/test_elastic_sampling\.py::test_a_draft_that_gives_another_pools_probabilities_is_noticed$",
            r"^tests/jaxspec/speculate/test_elastic_sampling\.py::test_sampled_texts_have_the_targets_distribution$",
            r"^tests/experiments/papers/elmoe3d/test_elmoe3d\.py::test_figures$",
            # A run stopped at any stage stays; so does one broken rule.
            r"^tests/jaxspec/studies/test_end_to_end\.py::test_an_ascent_killed_between_checkpoints_",
            r"^tests/jaxspec/speculate/test_tree_rules\.py::test_a_million_cycles_notice_a_broken_rule\[refused_without_residual\]$",
            # Drafts and rules of one path.
            r"^tests/jaxspec/speculate/test_tree_decoding\.py::.*\[(chain|late ranks)-(random|near|lookup)\]$",
            r"^tests/jaxspec/speculate/test_sampling\.py::test_texts_have_the_filtered_targets_distribution\[filters[1-9]\]$",
        ),
    )
)


def is_slow(node_id: str) -> bool:
    """Whether a test is one of them."""
    return any(pattern.search(node_id) for pattern in SLOW_CHECKS)
