"""What every draft of the registry keeps to, and one that is made up here."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.errors import InputError
from jaxspec.models.decoder import forward, forward_text
from jaxspec.models.draft_head import abstract_head_params, target_ends
from jaxspec.models.embedded import load_model
from jaxspec.settings.draft_kinds import DRAFT_KINDS, draft_names, has_files
from jaxspec.speculate import loop, measured_ranks
from jaxspec.speculate.drafts import (
    HeadDraft,
    HeadDraftParams,
    NetworkDraft,
    NGramDraft,
    NGramParams,
    QuantizedDraft,
    ReadyDraft,
    make_draft,
    self_draft,
)
from jaxspec.speculate.drafts.factory import is_searched
from jaxspec.speculate.drafts.layer_skip_draft import layer_skip_draft
from jaxspec.speculate.drafts.lookahead_draft import LookaheadDraft
from jaxspec.speculate.drafts.medusa_draft import MedusaDraft, MedusaParams
from jaxspec.speculate.drafts.quantized_draft import quantized_copy
from jaxspec.speculate.drafts.sparse_kv_draft import sparse_kv_draft
from jaxspec.speculate.engine import decode, decode_autoregressively
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import GREEDY
from jaxspec.testing import drafts as contract
from jaxspec.testing.drafts import IDS, PROMPTS, TARGET, TOKENS
from jaxspec.trees import chain_tree

SMALL = dataclasses.replace(TARGET, hidden_size=10, num_layers=1, num_heads=3, num_kv_heads=1, head_dim=6)
SEED = jax.random.key(contract.SEED)


@dataclasses.dataclass(frozen=True)
class TableDraft:
    """A draft that is nothing but a table of what follows a token: the least that a new one must say."""

    vocab_size: int
    name: str = dataclasses.field(default="table", compare=False)

    def num_parameters(self, params: Any) -> int:
        return params.size

    def cost(self, target, priced, called) -> DraftCost:
        return DraftCost(passes=0.0, statement=f"one row of a table, however large {called} is")

    def empty(self, params, batch, slots, numbers):
        return ()

    def commit(self, params, memory, committed):
        return memory

    def open(self, params, memory, root):
        return params[root.token], memory

    def extend(self, params, memory, root, level):
        return params[level.tokens], memory


def medusa_params(target, rng):
    """Two heads of one block, the first of which is much like the target's own."""
    width, head = TARGET.hidden_size, target["lm_head"]
    heads = {"block": 0.01 * rng.standard_normal((2, 1, width, width)), "lm_head": jnp.stack([head, head[::-1]])}
    return MedusaParams(jax.tree.map(jnp.float32, heads), {"final_norm": target["final_norm"]})


@pytest.fixture(scope="module")
def target():
    return contract.network()


@pytest.fixture(scope="module")
def drafts(target, random_network):
    head_config = dataclasses.replace(TARGET, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=6)
    rng = np.random.default_rng(2)
    loaded = contract.loaded_target()
    head = jax.tree.map(
        lambda leaf: jnp.asarray(leaf.shape[-1] ** -0.5 * rng.standard_normal(leaf.shape, np.float32)),
        abstract_head_params(head_config),
    )
    return {
        "self": self_draft(TARGET, target, uniform_knobs(CASSANDRA1, TARGET)),
        "ngram": ReadyDraft(NGramDraft(11, longest=3), NGramParams()),
        "head": ReadyDraft(HeadDraft(head_config), HeadDraftParams(head, target_ends(target))),
        "network": ReadyDraft(NetworkDraft(SMALL), random_network(SMALL, 3, sharpness=3.0)),
        "q4": ReadyDraft(QuantizedDraft(TARGET), quantized_copy(target, TARGET)),
        "layer-skip": layer_skip_draft("layer-skip", loaded, {"run": np.array([[1, 0], [0, 1]])}),
        "sparse-kv-25": sparse_kv_draft("sparse-kv-25", loaded),
        "lookahead": ReadyDraft(LookaheadDraft(TARGET, 3, 3), target),
        "medusa": ReadyDraft(MedusaDraft(TARGET, 2, 1), medusa_params(target, rng)),
        "table": ReadyDraft(TableDraft(11), jnp.asarray(rng.standard_normal((11, 11)), jnp.float32)),
    }


NAMES = ("self", "ngram", "head", "network", "q4", "layer-skip", "sparse-kv-25", "lookahead", "medusa", "table")


@pytest.mark.network("self", "ngram")
@pytest.mark.parametrize("name", NAMES)
def test_chains_and_trees_give_one_text_in_one_compilation(drafts, name):
    contract.gives_one_text(drafts[name])


@pytest.mark.network("self")
@pytest.mark.parametrize("name", ["self", "q4", "layer-skip", "sparse-kv-25"])
def test_many_roots_at_once_rank_as_one_after_the_other(drafts, name):
    assert callable(drafts[name].draft.follow)
    contract.follows_as_it_is_asked(drafts[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_draft_has_name_size_and_cost(drafts, name):
    draft, params = drafts[name]
    assert draft.name == name
    assert draft.num_parameters(params) == 0 or name not in ("self", "ngram")
    contract.describes_itself(drafts[name])


def test_without_a_draft_nothing_is_needed_of_one(target, drafts):
    request = Request(PROMPTS, IDS, SEED, TOKENS)
    alone = decode_autoregressively(target, None, request, GREEDY, draft=None, limits=chain_limits(1), config=TARGET)
    np.testing.assert_array_equal(alone.cycles, TOKENS)
    draft, params = drafts["table"]
    drafted = decode(target, params, request, chain_tree(2, 3), GREEDY, draft=draft, config=TARGET)
    end = PROMPTS.shape[1] + TOKENS
    # Of other widths rows may differ in their last bits.
    margin = np.minimum(alone.margin.min(axis=1), drafted.margin.min(axis=1))
    same = np.all(alone.tokens[:, :end] == drafted.tokens[:, :end], axis=1)
    assert np.all(same | (margin < 1e-3))


# --- What else a target tells --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RouterDraft(TableDraft):
    """Proposes after a root what the target recorded one position before it."""

    def empty(self, params, batch, slots, numbers):
        return jnp.zeros(batch, jnp.int32)

    def commit(self, params, memory, committed):
        return jnp.take_along_axis(committed.extras["router"], committed.valid[:, None] - 1, axis=1)[:, 0]

    def open(self, params, memory, root):
        return jax.nn.one_hot(memory, self.vocab_size), memory

    def extend(self, params, memory, root, level):
        return jnp.zeros((*level.tokens.shape, self.vocab_size)), memory  # chains of one token have no further level


def recording(inner):
    """A network that tells of each token which number it would be routed to."""

    def run(params, config, tokens, *rest, **options):
        result = inner(params, config, tokens, *rest, **options)
        return result._replace(extras={"router": (tokens * 3 + 1) % 11})

    return run


def test_a_draft_reads_what_else_the_target_recorded(monkeypatch, target):
    monkeypatch.setattr(loop, "forward", recording(forward))
    monkeypatch.setattr(measured_ranks, "forward_text", recording(forward_text))
    draft = RouterDraft(11)
    static = dict(draft=draft, config=TARGET, room=41, limits=chain_limits(2))
    run = functools.partial(decode, target, jnp.zeros(0), Request(PROMPTS, IDS, SEED, 40))
    texts = np.asarray(run(chain_tree(0, 2), GREEDY, **static).tokens)
    found = run(chain_tree(1, 2), GREEDY, **static)
    start, counted = PROMPTS.shape[1], []
    for text in texts:
        place, cycles = start - 1, 0  # of the root
        while place < start - 1 + 40:
            hit = text[place + 1] == (text[place - 1] * 3 + 1) % 11
            place, cycles = place + 1 + hit, cycles + 1
        counted.append(cycles)
    np.testing.assert_array_equal(found.cycles, counted)
    assert min(counted) < 40  # some were accepted
    known = measured_ranks.ContinuedTexts(texts[:, : start + 40])
    ranks = measured_ranks._measure_ranks.__wrapped__(
        target, jnp.zeros(0), known, draft=draft, config=TARGET, prompt_tokens=start, depth=1
    ).rank[..., 0]
    told = (texts[:, start - 2 : start + 38] * 3 + 1) % 11
    np.testing.assert_array_equal(ranks == 0, told == texts[:, start : start + 40])


# --- The registry -----------------------------------------------------------------------------------------------------------


def test_the_registry_makes_every_kind():
    loaded = load_model("embedded")
    for name in draft_names():
        if name == "self":
            with pytest.raises(InputError, match="compressed on calibration text; make it with self_draft"):
                make_draft(name, loaded)
        elif is_searched(name):
            with pytest.raises(InputError, match="searched on calibration text, and nothing was searched here"):
                make_draft(name, loaded)
            run = np.array([[1, 1, 0, 1], [1, 0, 1, 1]])
            assert make_draft(name, loaded, {"run": run}).draft.name == name
        elif name in ("mtp", "medusa"):
            with pytest.raises(InputError, match=r"has no layer for further tokens|has no tensors of Medusa heads"):
                make_draft(name, loaded)
        else:
            assert make_draft(name, loaded).draft.name == name
    assert [name for name in draft_names() if has_files(name)] == ["embedded-head", "embedded-small"]
    assert has_files("/some/directory")
    # Medusa heads are the target's own or a folder's, by one function.
    assert len({kind.place for kind in DRAFT_KINDS.values()}) == len(DRAFT_KINDS) - 1


def test_the_copy_in_4_bits_by_hand(drafts):
    # One group: the scale is 8 / -8 = -1, codes are floor(x / -1 + 8.5), so 8 is code 0, 2.4 code 6, -3 code 11.
    row = jnp.zeros((1, 1, 32)).at[0, 0, :3].set(jnp.asarray([8.0, 2.4, -3.0]))
    config = dataclasses.replace(TARGET, num_layers=1)
    made = quantized_copy({"layers": dict.fromkeys(config.matrix_kinds, row)}, config)["layers"]["q"].values()
    np.testing.assert_array_equal(made[0, 0, :4], [8, 2, -3, 0])
    draft, params = drafts["q4"]
    assert draft.num_parameters(params) == sum(params["layers"][kind].size for kind in TARGET.matrix_kinds)
