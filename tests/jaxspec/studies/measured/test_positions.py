"""Networks with learned positions are asked for no more of them than they have."""

import dataclasses
from types import SimpleNamespace
from typing import cast

import pytest

from hwmodels.networks import LearnedPositions
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.settings import build_config
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies import TreeConfig
from jaxspec.studies.measured.checking import text_length
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.run_context import RunContext
from jaxspec.studies.tree.stages import TreeStages, check_tree
from jaxspec.studies.tune.config import TuneConfig

pytestmark = pytest.mark.study

NETWORK = DecoderConfig(
    vocab_size=13, hidden_size=18, intermediate_size=26, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=6
)
CONFIG = TuneConfig(prompt_tokens=20, output_tokens=10, continuation_tokens=10)
#: Places of a prompt of 20 tokens, and of what is decoded and drafted behind it.
NEEDED = 20 + continuation_length(10)


def with_positions(count, offset=2):
    return dataclasses.replace(NETWORK, learned_positions=LearnedPositions(rows=count + offset, offset=offset))


@pytest.mark.parametrize("longest", [3, 20])
def test_calibration_prompts_count_too(longest):
    text_length(CONFIG, longest).check("embedded", with_positions(NEEDED))
    message = (
        rf"embedded has {NEEDED - 1} positions; .* up to 20 tokens with {NEEDED - 20} decoded .* need {NEEDED}: give"
    )
    with pytest.raises(InputError, match=message):
        text_length(CONFIG, longest).check("embedded", with_positions(NEEDED - 1))


#: Of the catalog's network, which keeps two rows for no position.
OPT = r"architecture 'opt-[0-9.]+b' has a table of 2,050 positions, and a text of {} tokens is to be priced; give a shorter"


def test_trees_are_chosen_where_the_priced_network_has_positions(some_text, tmp_path):
    given = {
        "architecture": "opt-2.7b",
        "device": ("rtx-4090",),
        "text": str(some_text),
        "prompts": 2,
        "output_tokens": 10,
    }
    config = build_config(TreeConfig, given | {"prompt_tokens": 20, "context": 2049})
    checked = check_tree(config)
    assert checked.notes[-1] == (
        "architecture 'opt-2.7b' has a table of 2,050 positions: no tree is chosen at 4,096, 8,192, 16,384 cached tokens"
    )
    stages = TreeStages(
        config, cast(RunContext, SimpleNamespace(pricings=checked.pricings)), cast(HardDrafts, None), None
    )
    assert stages.contexts == (128, 512, 2048, 2049)
    # What the user asked for is refused.
    with pytest.raises(InputError, match=OPT.format("2,051")):
        check_tree(dataclasses.replace(config, contexts=(512, 2050)))
    assert not any(
        "no tree is chosen" in note for note in check_tree(dataclasses.replace(config, contexts=(2049,))).notes
    )
    rotated = dataclasses.replace(config, architecture="llama-3.2-1b", contexts=(512, 1_000_000))
    assert not any("no tree is chosen" in note for note in check_tree(rotated).notes)
