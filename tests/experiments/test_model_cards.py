"""Cards of the shipped networks and of the head are what the training scripts write."""

import re

import numpy as np
import pytest

from experiments.model_cards import load_lines, training_facts, write_card
from experiments.train_arithmetic.train import JUDGE_RECIPE
from experiments.train_arithmetic.train import RECIPE as ARITHMETIC
from experiments.train_draft_head.train import HeadRecipe
from experiments.train_embedded.balance import load_summary
from experiments.train_embedded.train import RECIPES, SHAPES
from jaxspec.models.embedded import embedded_directory

CARDS = {
    "embedded": ("embedded", RECIPES["embedded"]),
    "small": ("embedded-small", RECIPES["small"]),
    "moe": ("embedded-moe", RECIPES["moe"]),
    "head": ("embedded-head", HeadRecipe()),
    "arithmetic": ("embedded-arithmetic", ARITHMETIC),
    "judge": ("embedded-judge", JUDGE_RECIPE),
}


@pytest.mark.parametrize("card", CARDS)
def test_the_shipped_card_is_one_of_these(card, tmp_path):
    name, recipe = CARDS[card]
    shipped = (embedded_directory(name) / "README.md").read_text(encoding="utf-8")
    state = {"step": recipe.steps, "params": {"w": np.zeros(1)}}
    corpus = {"library": np.zeros(11, np.uint8), "tests": np.zeros(13, np.uint8)}
    facts = training_facts(state, corpus, recipe) | {"bits_per_byte": 1.25, "agreement": "so much"}
    facts["problems"] = 7
    facts |= {f"{kind}_{n}": 0.5 for kind in ("pass_at", "best_of") for n in (1, 4, 16)}
    facts["load"] = load_lines(load_summary(np.full((4, 32), 1 / 8)))
    write_card(tmp_path, card, SHAPES.get(card, SHAPES["embedded"]), facts)
    written = (tmp_path / "README.md").read_text(encoding="utf-8")
    # The same but for what a run measures: numbers, the machine, and how often a draft agreed.
    words = lambda text: re.findall(r"[A-Za-z][a-z]+", re.sub(r"; on [^\n]*|(there|modules),\n(  [^\n]*\n)+", "", text))
    assert words(written) == words(shipped)
    assert f"seed {recipe.seed}" in written
    if card not in ("arithmetic", "judge"):
        assert "11 bytes of modules, 13 bytes of their tests" in written


def test_lines_of_a_load_by_hand():
    # Two experts of four get all tokens in the first layer (1 bit); in the second one all are alike (2 bits).
    load = np.asarray([[1, 0, 1, 0], [0.5, 0.5, 0.5, 0.5]])
    assert load_lines(load_summary(load)).splitlines() == [
        "  - layer 0: 0.0% to 100.0%, 1.00 bits",
        "  - layer 1: 50.0% to 50.0%, 2.00 bits",
    ]
