"""Other engines' decoding with an exported draft: transformers' recorded tokens and acceptance, and live with `-m oracle`."""

import importlib.util
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import load_directory, load_model
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import NetworkDraft, ReadyDraft
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies import ExportConfig, export_draft
from jaxspec.trees.rank_traces import ratio_of_totals

pytestmark = pytest.mark.study

GOLDEN = Path(__file__).parents[3] / "golden"


@pytest.fixture(scope="module")
def maker():
    """The script that made the golden file, as a module."""
    spec = importlib.util.spec_from_file_location("make_export_golden", GOLDEN / "make_export_golden.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tokens_per_cycle(accepted):
    """Mean and standard error over prompts, from accepted tokens by cycle."""
    tokens = np.array([sum(row) + len(row) for row in accepted], float)
    found = ratio_of_totals(tokens, np.array([len(row) for row in accepted], float))
    return float(found.mean), float(found.standard_error)


def assert_same_acceptance(measured, accepted):
    """Tokens per cycle that we measured and those of another engine, on the same prompts."""
    mean, error = tokens_per_cycle(accepted)
    assert abs(measured - mean) <= 3 * error
    # It is the same draft, rule and text, so that hardly any cycle differs.
    assert measured == pytest.approx(mean, rel=0.02)


def test_the_recorded_tokens_and_acceptance(maker, tmp_path):
    golden = json.loads((GOLDEN / "export.json").read_text())
    assert golden["settings"] == {"draft_length": maker.DRAFT_LENGTH, "knobs": maker.KNOBS, **maker.SETTINGS}
    run = maker.make_run(tmp_path / "run")
    export_draft(ExportConfig(run=str(run), prompts=0), tmp_path / "draft")
    target = load_model("embedded")
    float32 = lambda params: jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.float32), params)
    draft = ReadyDraft(NetworkDraft(target.config), float32(load_directory(tmp_path / "draft").params))
    prompts, count = (maker.SETTINGS[name] for name in ("prompts", "output_tokens"))
    texts = maker.held_out(prompts=prompts, prompt_tokens=maker.SETTINGS["prompt_tokens"])
    options = {"num_tokens": count, "decoding": GREEDY, "seed": 0}
    found = decode_chains(float32(target.params), target.config, draft, Prompts(texts, **options), maker.DRAFT_LENGTH)
    decoded = found["tokens"][:, texts.shape[1] : texts.shape[1] + count]
    np.testing.assert_array_equal(decoded, [prompt["tokens"] for prompt in golden["prompts"]])
    measured = found["generated"].sum() / found["cycles"].sum()
    assert_same_acceptance(measured, [prompt["accepted"] for prompt in golden["prompts"]])


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")  # of torch and transformers
@pytest.mark.parametrize(
    "settings",
    [
        {"weight_prune": 0.35, "weight_cut_bits": 5.0, "draft_length": 3, "seed": 5},
        {"weight_prune": 0.6, "weight_cut_bits": 2.0, "draft_length": 7, "output_tokens": 40, "prompt_tokens": 23},
        {"scheme": "cassandra2", "weight_prune": 0.4, "weight_cut_bits": 4.0, "draft_length": 4},
        {"scheme": "any-precision", "slice_bits": 4.0, "draft_length": 4},
    ],
)
def test_transformers_decodes_with_an_exported_draft(maker, settings, tmp_path):
    pytest.importorskip("transformers")
    run = maker.make_run(tmp_path / "run", **settings)
    result = export_draft(ExportConfig(run=str(run)), tmp_path / "draft")
    full = maker.SETTINGS | settings
    prompts = maker.held_out(prompts=12, prompt_tokens=full["prompt_tokens"], seed=full.get("seed", 0))
    length, count = full["draft_length"], full["output_tokens"]
    # The target of a scheme that rounds it is exported as well.
    target = None if result.checkpoint is None else tmp_path / "draft" / "target"
    found = maker.assisted(tmp_path / "draft", prompts, draft_length=length, output_tokens=count, target=target)
    assert_same_acceptance(result.alone.tokens_per_cycle.value, [prompt["accepted"] for prompt in found])


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_the_golden_file_is_reproduced(maker, tmp_path):
    pytest.importorskip("transformers")
    golden, found = json.loads((GOLDEN / "export.json").read_text()), maker.make(tmp_path)
    ours, theirs = (tokens_per_cycle([row["accepted"] for row in made["prompts"]]) for made in (found, golden))
    assert ours == pytest.approx(theirs, rel=0.02)
    assert [row["tokens"] for row in found["prompts"]] == [row["tokens"] for row in golden["prompts"]]
