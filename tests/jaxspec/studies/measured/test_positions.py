"""Networks with learned positions are asked for no more of them than they have."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import jax
import pytest

from hwmodels.networks import LearnedPositions
from jaxspec.errors import InputError
from jaxspec.models import init_params, save_directory
from jaxspec.models.config import DecoderConfig, decoder_config
from jaxspec.settings import CommonConfig, build_config
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies import CompareConfig, ScaleConfig, ServeConfig, TreeConfig, serve
from jaxspec.studies.measured.checking import check_inputs, text_length
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.measured.run_context import RunContext
from jaxspec.studies.scale.inputs import check_scale
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import plan_sweep
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


def priced(**settings):
    return resolve_pricing(CommonConfig(architecture="opt-6.7b", **settings), "rtx-4090", None)


#: Of the catalog's network, which keeps two rows for no position.
OPT = r"architecture 'opt-[0-9.]+b' has a table of 2,050 positions, and a text of {} tokens is to be priced; give a shorter"


def test_no_step_is_priced_behind_the_last_position(tmp_path):
    assert priced(context=2049).architecture.learned_positions == 2050
    with pytest.raises(InputError, match=OPT.format("2,051")):
        priced(context=2050)
    with pytest.raises(InputError, match=OPT.format("2,051")):
        priced(prompt_tokens=2051)
    axis = {"axes": {"workload.context_tokens": [100, 4000]}, "architecture": ("opt-2.7b",)}
    fixed = {"axes": {"workload.batch": [1]}, "architecture": ("opt-2.7b",), "set": {"workload.context_tokens": 4000}}
    for settings in (axis, fixed):
        with pytest.raises(InputError, match=OPT.format("4,001")):
            plan_sweep(SweepConfig(device=("rtx-4090",), **settings))
    queue = {"architecture": "opt-2.7b", "prompt_tokens": 2000, "prompt_variation": 0.0, "output_variation": 0.0}
    with pytest.raises(InputError, match=OPT.format("2,099")):
        serve(build_config(ServeConfig, queue | {"output_tokens": 100}), out=str(tmp_path / "served"))
    assert not (tmp_path / "served").exists()


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


@pytest.fixture
def few_positions(tmp_path):
    """A network of bytes with learned positions, of which it has few."""
    golden = json.loads((Path(__file__).parents[3] / "golden" / "hf" / "opt_learned" / "config.json").read_text())
    network = decoder_config(golden | {"vocab_size": 256, "max_position_embeddings": NEEDED - 1})
    save_directory(init_params(network, jax.random.key(0)), network, tmp_path / "opt", max_positions=NEEDED - 1)
    return tmp_path / "opt"


def test_a_draft_that_is_a_network_has_positions_of_its_own(few_positions, some_text, tmp_path):
    length = text_length(CONFIG, 20)
    assert length.of_draft("ngram") == length.of_draft("self") == length.of_draft("embedded-small") == ()
    (note,) = text_length(CONFIG, 10_000).of_draft("embedded-small")
    assert note.startswith("embedded-small is made for texts of ")
    given = {"text": str(some_text), "prompts": 2, "prompt_tokens": 20, "output_tokens": 10}
    message = f"opt has {NEEDED - 1} positions; prompts of up to 20 tokens"
    for config, draft in ((TreeConfig, "draft"), (CompareConfig, "drafts")):
        with pytest.raises(InputError, match=message):
            check_inputs(build_config(config, given | {draft: str(few_positions)}))
    scaled = {"task": "arithmetic", "prompts": 2, "output_tokens": 300, "draft": str(few_positions)}
    with pytest.raises(InputError, match=f"opt has {NEEDED - 1} positions; prompts of up to"):
        check_scale(build_config(ScaleConfig, scaled))
    assert check_scale(build_config(ScaleConfig, scaled | {"acceptance": 0.7})).networks
