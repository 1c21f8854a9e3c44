"""What takes longest among the units that workers take one by one: modules, and classes of their own."""

#: Seconds on one core, roughly; those of all others do not matter.
LONGEST_S = {
    "tests/jaxspec/speculate/test_tree_decoding.py": 30,
    "tests/jaxspec/studies/test_end_to_end.py": 55,
    "tests/test_documentation.py::Test_from_network_to_draft": 50,
    "tests/jaxspec/studies/pack/test_packing.py": 35,
    "tests/experiments/papers/elmoe3d/test_elmoe3d.py": 35,
    "tests/test_documentation.py::Test_tree_speculation": 35,
    "tests/jaxspec/studies/tree/test_tree_search.py": 30,
    "tests/jaxspec/speculate/test_tree_rules.py": 30,
    "tests/jaxspec/cli/test_bad_input.py": 25,
    "tests/hwmodels/test_nothing_is_inert.py": 25,
    "tests/test_documentation.py::Test_pack_a_checkpoint": 20,
    "tests/jaxspec/cli/test_processes.py": 20,
    "tests/test_documentation.py::Test_huffllm": 15,
}
