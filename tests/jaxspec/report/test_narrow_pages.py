"""What pages are on a narrow screen: figures scroll instead of shrinking until nothing can be read, long names fold."""

import importlib.resources

TEMPLATE = importlib.resources.files("jaxspec.report").joinpath("template.html.j2").read_text(encoding="utf-8")


def test_figures_keep_a_width_at_which_their_words_are_legible_and_scroll():
    # A figure is 648 points wide with words of 8 to 10; at 337 pixels, which a telephone leaves, they have 4 to 5.
    (rule,) = [line for line in TEMPLATE.splitlines() if "figure svg { min-width: 34rem; }" in line]
    assert rule.strip().startswith("@media screen { figure { overflow-x: auto; }")  # paper cannot scroll


def test_sources_of_device_data_are_no_column_of_single_letters():
    assert "@media screen { .data { min-width: 34rem; } }" in TEMPLATE
    assert '<div class="scroll"><table class="data">' in TEMPLATE


def test_names_beside_facts_take_less_than_half_of_the_width():
    # A column as wide as its longest name pushes the facts over the edge.
    (rule,) = [line for line in TEMPLATE.splitlines() if line.strip().startswith("dl {")]
    assert "fit-content(45%) 1fr" in rule
    assert "max-content" not in rule
