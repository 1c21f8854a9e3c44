"""Checks that run with `pytest -m slow` alone: repetitions of another, and those that take the longest of their module.

Repetitions are on a further device, scheme, size or network, and stand here; one of each kind stays in every run. What takes
long stands in `slow_checks.txt`, which `choose_slow_checks.py` writes from measured times; one of each module stays. A test
that is slow wherever it runs carries the marker where it stands.
"""

import re
from pathlib import Path

#: Node ids, one a line.
CHOSEN = Path(__file__).parent / "slow_checks.txt"

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
            r"^tests/hwmodels/test_time_by_width\.py::test_time_never_rises_when_bits_fall\[(b200-sxm|h100-sxm|l40s|rtx-pro-6000)\]$",
            r"^tests/hwmodels/test_calibrated_experts\.py::test_fewer_bits_and_fewer_tokens_never_take_longer\[(h200-sxm|l40s)\]$",
            r"^tests/hwmodels/test_calibrated_devices\.py::test_never_faster_than_the_data_sheet\[(h100-sxm|h200-sxm|l40s)\]$",
            r"^tests/hwmodels/analysis/test_launch_remarks\.py::test_a_large_network_hears_nothing\[h100-sxm\]$",
            # Gradients of calibrated GPUs: those of the unit and of its products stay.
            r"^tests/hwmodels/test_time_by_width\.py::test_gradient_by_bits",
            r"^tests/hwmodels/test_calibrated_devices\.py::test_elasticities_of_a_calibrated_step$",
            # Schemes of one class in other widths.
            r"^tests/jaxspec/compress/schemes/test_scheme_contract\.py::.*\[(cassandra1-coded|mxint8|any-precision|bit-slices)\]$",
            r"^tests/jaxspec/compress/schemes/test_scheme_contract\.py::.*\[(cassandra2-head)\]$",
            r"^tests/jaxspec/compress/schemes/test_scheme_contract\.py::.*\[(q8_0|tile-q8_0|tile-q4_0|q4_0-down8|int8-channel|mxfp8)\]$",
            r"^tests/jaxspec/tuning/test_objective\.py::test_the_soft_measurement_tends_to_the_hard_one\[cassandra1-coded\]$",
            r"^tests/jaxspec/studies/test_quantized_runs\.py::test_tuning_chooses_the_draft_length_alone$",
            r"^tests/jaxspec/formats/container/test_container_loading\.py::test_the_shipped_network_is_the_same_by_both_ways\[huffman\]$",
            # Heads of drafts: tied and untied networks, or one of both where nothing else differs.
            r"^tests/jaxspec/studies/test_head_runs\.py::test_a_tied_network_.*\[cassandra2-head\]$",
            r"^tests/jaxspec/studies/test_head_runs\.py::test_(an_exported_draft|decoding_without_a_draft)_.*\[False\]$",
            r"^tests/jaxspec/studies/test_head_runs\.py::test_tuning_moves_the_head_with_everything_else$",
            r"^tests/jaxspec/compress/test_head\.py::test_gradient_by_the_knobs_of_the_head\[untied\]$",
            # Mixtures: chains of one sequence, trees of several and one kind of latent attention stay.
            r"^tests/jaxspec/speculate/drafts/test_elastic_draft\.py::test_(chains_put_out_the_targets_text\[8\]|trees_put_out_the_targets_text)",
            r"^tests/jaxspec/studies/test_elastic_runs\.py::test_a_mixture_decodes_as_its_target_and_as_foretold\[1\]$",
            r"^tests/jaxspec/studies/test_elastic_runs\.py::test_a_dense_network_says_that_it_has_no_pools$",
            r"^tests/jaxspec/studies/test_expert_pricing\.py::test_points_of_a_sweep_are_those_of_the_cost_model$",
            r"^tests/experiments/silicon/test_mixture_steps\.py::test_experts_held_whole_keep_to_the_bar\[vllm\]$",
            r"^tests/jaxspec/models/test_latent_drafts\.py::test_chains_and_trees_.*\[(deepseek_v2_grouped|gpt_oss_sinks)\]$",
            r"^tests/jaxspec/speculate/test_elastic_sampling\.py::test_probabilities_of_another_pool_are_noticed$",
            r"^tests/jaxspec/speculate/test_elastic_sampling\.py::test_sampled_texts_have_the_targets_distribution$",
            r"^tests/experiments/papers/elmoe3d/test_elmoe3d\.py::test_figures$",
            # Papers of which one number takes longest to compute.
            r"^tests/experiments/papers/test_contract\.py::test_(rows|each_row|summaries|a_verdict).*\[(cassandra|elmoe3d)\]$",
            # A run stopped at any stage stays; so does one broken rule.
            r"^tests/jaxspec/studies/test_end_to_end\.py::test_an_ascent_killed_between_checkpoints_",
            r"^tests/jaxspec/speculate/test_tree_rules\.py::test_a_million_cycles_notice_a_broken_rule\[refused_without_residual\]$",
            # Drafts and rules of one path.
            r"^tests/jaxspec/speculate/test_tree_decoding\.py::.*\[(chain|late ranks)-(random|near|lookup)\]$",
            r"^tests/jaxspec/speculate/test_sampling\.py::test_texts_have_the_filtered_targets_distribution\[filters[1-9]\]$",
            r"^tests/jaxspec/speculate/test_sampling\.py::test_a_filter_on_one_side_is_noticed",
            r"^tests/jaxspec/speculate/test_chain_sampling\.py::test_sampled_texts_have_the_targets_distribution\[0\]$",
            r"^tests/jaxspec/speculate/test_tree_sampling\.py::test_sampled_texts_have_the_targets_distribution\[(top|growing)\]$",
            r"^tests/jaxspec/speculate/test_text_lengths\.py::test_ranks_tell_every_cycle_of_a_tree\[network\]$",
            r"^tests/jaxspec/speculate/test_unequal_prompts\.py::test_ranks_tell_every_cycle_of_a_tree\[False\]$",
            r"^tests/jaxspec/speculate/test_tree_decoding\.py::test_sampled_results_do_not_depend_on_batching\[top\]$",
            r"^tests/jaxspec/speculate/test_tree_decoding\.py::test_growing_trees_of_odd_shapes\[growing2\]$",
            r"^tests/jaxspec/speculate/test_rules_samples\.py::test_a_tenth_of_them_notices_a_broken_rule\[ratio ",
            # Commands of one kind: a study, one that writes a file and one that says nothing stay.
            r"^tests/jaxspec/cli/test_processes\.py::test_a_signal_ends_every_command_at_once_.*\[(evaluate|tree|pack|inspect)-",
            r"^tests/jaxspec/cli/test_processes\.py::test_a_full_disk_below_the_output_is_one_line\[devices\]$",
            r"^tests/jaxspec/cli/test_bad_input\.py::test_new_processes_say_the_same_as_forked_ones\[tune --model absent",
            r"^tests/jaxspec/studies/test_one_price\.py::test_commands_that_measure\[of_compare\]$",
            # Runs and prices of one kind more; their parts have tests of their own.
            r"^tests/jaxspec/studies/test_own_prompts\.py::test_a_tree_on_own_prompts_that_stop$",
            r"^tests/jaxspec/studies/tree/test_tree_pricing\.py::test_times_are_those_of_one_tree_after_the_other\[copy\]$",
            r"^tests/jaxspec/studies/codesign/test_drawing\.py::test_the_same_seed_gives_the_same_file_also_after_a_kill$",
            r"^tests/jaxspec/studies/sweep/test_shards\.py::test_interrupts_lose_no_point_and_double_none\[[23]\]$",
            r"^tests/jaxspec/studies/codesign/test_codesign\.py::test_a_larger_array_must_cost_area_and_power\[switching",
            # What breaks a network, or a number of it, in one more way.
            r"^tests/experiments/test_shipped_networks\.py::test_a_broken_network_is_above_the_bound\[(router|shared_down)",
            r"^tests/jaxspec/models/test_hf_golden\.py::test_the_comparison_sees_a_wrong_network\[(divided_weights|fewer_experts)\]$",
            r"^tests/jaxspec/models/test_hf_golden\.py::test_the_comparison_sees_a_wrong_network\[(softmax_scores|routed_scale)\]$",
            r"^tests/jaxspec/models/test_hf_golden\.py::test_the_comparison_sees_a_wrong_network\[(no_groups|score_mscale)\]$",
            r"^tests/jaxspec/models/test_hf_golden\.py::test_the_comparison_sees_a_wrong_network\[no_clamp\]$",
            r"^tests/jaxspec/models/test_fp16_attention\.py::test_it_is_attention\[slots1-",
            r"^tests/jaxspec/models/test_experts\.py::test_a_mixture_computes_what_its_chosen_experts_do\[3\]$",
            r"^tests/jaxspec/scaling/test_samples\.py::test_samples_have_the_networks_distribution\[decoding0\]$",
        ),
    )
)


#: Those of `choose_slow_checks.py`.
LONG_CHECKS = frozenset(CHOSEN.read_text(encoding="utf-8").splitlines())


def is_slow(node_id: str) -> bool:
    """Whether a test is one of them."""
    return node_id in LONG_CHECKS or any(pattern.search(node_id) for pattern in SLOW_CHECKS)
