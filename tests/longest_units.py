"""What takes longest among the units that workers take one by one: modules, and classes of their own."""

#: Units that take less than so many seconds are not listed.
LEAST_S = 20

#: Seconds on one core, roughly, of a machine that does nothing else: a run prints those that are wrong at its end.
LONGEST_S = {
    "tests/test_documentation.py::Test_mobile_npu": 220,
    "tests/test_documentation.py::Test_tune": 100,
    "tests/jaxspec/models/test_hf_golden.py": 100,
    "tests/test_documentation.py::Test_evaluate": 90,
    "tests/jaxspec/studies/test_several_hosts.py": 90,
    "tests/experiments/papers/test_contract.py": 90,
    "tests/jaxspec/cli/test_processes.py": 70,
    "tests/jaxspec/studies/test_kills.py": 60,
    "tests/test_documentation.py::Test_tree": 60,
    "tests/jaxspec/studies/sweep/test_sweep_kills.py": 50,
    "tests/test_documentation.py::Test_from_network_to_draft": 50,
    "tests/jaxspec/studies/test_end_to_end.py": 35,
    "tests/test_documentation.py::Test_tree_speculation": 35,
    "tests/jaxspec/speculate/test_tree_decoding.py": 30,
    "tests/jaxspec/speculate/drafts/test_draft_contract.py": 30,
    "tests/hwmodels/compute/test_unit_contract.py": 25,
    "tests/jaxspec/studies/test_elastic_runs.py": 25,
    "tests/jaxspec/speculate/drafts/test_elastic_draft.py": 25,
    "tests/jaxspec/compress/schemes/test_scheme_contract.py": 20,
    "tests/jaxspec/studies/compare/test_compare_run.py": 20,
    "tests/test_documentation.py::Test_pack_a_checkpoint": 20,
    "tests/jaxspec/studies/tree/test_tree_search.py": 20,
    "tests/jaxspec/tuning/test_objective.py": 20,
    "docs/pages/formats.md": 20,
    "docs/pages/containers.md": 20,
    "tests/jaxspec/models/test_mesh.py": 20,
    "tests/jaxspec/models/test_streamed.py": 20,
    "tests/hwmodels/step/test_step.py": 20,
    "docs/pages/codesign.md": 20,
    "docs/pages/guide.md": 20,
    "README.md": 20,
    "tests/jaxspec/tuning/test_lean_forms.py": 20,
    "tests/jaxspec/speculate/test_tree_rules.py": 20,
    "tests/jaxspec/cli/test_bad_input.py": 20,
    "tests/jaxspec/tuning/test_elastic_objective.py": 20,
}
