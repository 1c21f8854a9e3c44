"""What every draft of the registry keeps to, and one that is made up here."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwmodels
from hwmodels import catalog
from hwmodels.catalog.huggingface import FAMILIES
from hwmodels.speculation.draft_cost import DraftCost
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward, forward_text
from jaxspec.models.draft_head import abstract_head_params, target_ends
from jaxspec.models.embedded import load_model
from jaxspec.models.hf_load import LoadedModel
from jaxspec.settings.draft_kinds import DRAFT_KINDS, draft_names, has_files
from jaxspec.speculate import loop, measured_ranks, target_trace
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
from jaxspec.speculate.drafts.layer_skip_draft import layer_skip_draft
from jaxspec.speculate.drafts.making import is_searched
from jaxspec.speculate.drafts.quantized_draft import quantized_copy
from jaxspec.speculate.drafts.sparse_kv_draft import sparse_kv_draft
from jaxspec.speculate.engine import decode, decode_autoregressively
from jaxspec.speculate.expansion import TreeLimits, chain_limits
from jaxspec.speculate.sampling import GREEDY
from jaxspec.trees import chain_tree, pad_tree, tree_from_paths

TARGET = DecoderConfig(
    vocab_size=11, hidden_size=16, intermediate_size=12, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=4
)
SMALL = dataclasses.replace(TARGET, hidden_size=10, num_layers=1, num_heads=3, num_kv_heads=1, head_dim=6)
PROMPTS = np.random.default_rng(0).integers(11, size=(3, 5)).astype(np.int32)
IDS, TOKENS, SEED = np.array([40, 7, 311], np.int32), 9, jax.random.key(5)
LIMITS = TreeLimits(nodes=6, depth=6, ranks=3, width=2)
BUSH = pad_tree(tree_from_paths([(0,), (2,), (0, 0), (0, 1), (2, 1), (0, 1, 0)]), size=6)


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


@pytest.fixture(scope="module")
def target(random_network):
    return random_network(TARGET, 0, sharpness=3.0)


@pytest.fixture(scope="module")
def drafts(target, random_network):
    head_config = dataclasses.replace(TARGET, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=6)
    rng = np.random.default_rng(2)
    loaded = LoadedModel(TARGET, target, FAMILIES["llama"], Path())
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
        "table": ReadyDraft(TableDraft(11), jnp.asarray(rng.standard_normal((11, 11)), jnp.float32)),
    }


NAMES = ("self", "ngram", "head", "network", "q4", "layer-skip", "sparse-kv-25", "table")


#: Copies of the target, which take the steps of "q4" with other matrices or masks.
COPIES = {"layer-skip", "sparse-kv-25"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in COPIES)) for name in NAMES])
def test_chains_and_trees_give_one_text_in_one_compilation(jit, target, drafts, name):
    draft, params = drafts[name]
    traces = []

    def run(tree, prompts, lengths, stop):
        traces.append(1)
        return decode(
            target,
            params,
            prompts,
            IDS,
            tree,
            SEED,
            GREEDY,
            draft=draft,
            config=TARGET,
            num_tokens=TOKENS,
            limits=LIMITS,
            lengths=lengths,
            stop=stop,
        )

    jitted = jit(run)

    def run(tree, prompts, *, lengths=None, stop=-1):
        lengths = [prompts.shape[1]] * len(prompts) if lengths is None else lengths
        return jitted(tree, prompts, jnp.asarray(lengths), jnp.asarray([stop]))

    plain = run(chain_tree(0, LIMITS.nodes + 1), PROMPTS)
    np.testing.assert_array_equal(plain.cycles, TOKENS)
    end = PROMPTS.shape[1] + TOKENS
    for tree in (chain_tree(1, LIMITS.nodes + 1), chain_tree(6, LIMITS.nodes + 1), BUSH):
        found = run(tree, PROMPTS)
        np.testing.assert_array_equal(found.tokens[:, :end], plain.tokens[:, :end])
        np.testing.assert_array_equal(found.margin[:, :end], plain.margin[:, :end])
        np.testing.assert_array_equal(found.generated, found.cycles + np.sum(found.accepted_at, axis=1))
    assert len(traces) == 1
    # A prompt of one token tells a draft next to nothing.
    one = run(BUSH, PROMPTS[:, :1])
    np.testing.assert_array_equal(
        one.tokens[:, : 1 + TOKENS], run(chain_tree(0, 7), PROMPTS[:, :1]).tokens[:, : 1 + TOKENS]
    )
    # Among longer ones it is decoded as it is among its like, cycle by cycle, and they are too.
    counts = lambda found, row: [np.asarray(part)[row] for part in found[1:-1]]
    lengths = np.where(np.arange(len(PROMPTS)) == 1, 1, PROMPTS.shape[1])
    mixed = run(BUSH, PROMPTS, lengths=lengths)
    for row, length in enumerate(lengths):
        alone = one if length == 1 else found
        np.testing.assert_array_equal(mixed.tokens[row, : length + TOKENS], alone.tokens[row, : length + TOKENS])
        np.testing.assert_equal(counts(mixed, row), counts(alone, row))
    # A stop token ends a text, wherever in a cycle it comes.
    texts = np.asarray(plain.tokens)[:, PROMPTS.shape[1] : end]
    stop = int(texts[0, TOKENS // 2])
    stopped = run(BUSH, PROMPTS, stop=stop)
    for row, text in enumerate(texts):
        ends = np.append(np.flatnonzero(text == stop) + 1, TOKENS)[0]
        np.testing.assert_array_equal(stopped.tokens[row, PROMPTS.shape[1] :][:ends], text[:ends])
        assert stopped.generated[row] == ends or not np.any(text == stop)
        assert stopped.cycles[row] <= found.cycles[row]
    assert len(traces) == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_draft_has_name_size_and_cost(drafts, name):
    draft, params = drafts[name]
    assert draft.name == name
    renamed = dataclasses.replace(draft, name="other")
    assert (renamed.name, renamed, hash(renamed)) == ("other", draft, hash(draft))  # shares compilations
    assert draft.num_parameters(params) == {"self": 0, "ngram": 0}.get(name, draft.num_parameters(params))
    priced = catalog.architecture("llama-3.1-8b")
    cost = draft.cost(TARGET, priced, "llama-3.1-8b")
    assert {cost.passes, cost.shares_ends} <= {0.0, 1.0}
    assert "llama-3.1-8b" in cost.statement or name == "ngram"
    if cost.architecture is not None:
        whole, part = (sum(hwmodels.parameters(shape).values()) for shape in (priced, cost.architecture))
        assert 0 < float(part) < float(whole)


def test_without_a_draft_nothing_is_needed_of_one(target, drafts):
    static = dict(config=TARGET, num_tokens=TOKENS)
    alone = decode_autoregressively(
        target, None, PROMPTS, IDS, SEED, GREEDY, draft=None, limits=chain_limits(1), **static
    )
    np.testing.assert_array_equal(alone.cycles, TOKENS)
    draft, params = drafts["table"]
    drafted = decode(target, params, PROMPTS, IDS, chain_tree(2, 3), SEED, GREEDY, draft=draft, **static)
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

    def run(params, config, tokens=None, *rest, **options):
        tokens = options.pop("tokens", tokens)
        result = inner(params, config, tokens=tokens, **options)
        return result._replace(extras={"router": (tokens * 3 + 1) % 11})

    return run


def test_a_draft_reads_what_else_the_target_recorded(monkeypatch, target):
    monkeypatch.setattr(loop, "forward", recording(forward))
    monkeypatch.setattr(target_trace, "forward_text", recording(forward_text))
    draft = RouterDraft(11)
    static = dict(draft=draft, config=TARGET, num_tokens=40, room=41, limits=chain_limits(2))
    run = functools.partial(decode, target, jnp.zeros(0), PROMPTS, IDS)
    texts = np.asarray(run(chain_tree(0, 2), SEED, GREEDY, **static).tokens)
    found = run(chain_tree(1, 2), SEED, GREEDY, **static)
    start, counted = PROMPTS.shape[1], []
    for text in texts:
        place, cycles = start - 1, 0  # of the root
        while place < start - 1 + 40:
            hit = text[place + 1] == (text[place - 1] * 3 + 1) % 11
            place, cycles = place + 1 + hit, cycles + 1
        counted.append(cycles)
    np.testing.assert_array_equal(found.cycles, counted)
    assert min(counted) < 40  # some were accepted
    ranks = measured_ranks._measure_ranks.__wrapped__(
        target, jnp.zeros(0), texts[:, : start + 40], draft=draft, config=TARGET, prompt_tokens=start, depth=1
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
        else:
            assert make_draft(name, loaded).draft.name == name
    assert [name for name in draft_names() if has_files(name)] == ["embedded-head", "embedded-small"]
    assert has_files("/some/directory")
    assert len({kind.place for kind in DRAFT_KINDS.values()}) == len(DRAFT_KINDS)


def test_the_copy_in_4_bits_by_hand(drafts):
    # One group: the scale is 8 / -8 = -1, codes are floor(x / -1 + 8.5), so 8 is code 0, 2.4 code 6, -3 code 11.
    row = jnp.zeros((1, 1, 32)).at[0, 0, :3].set(jnp.asarray([8.0, 2.4, -3.0]))
    config = dataclasses.replace(TARGET, num_layers=1)
    made = quantized_copy({"layers": dict.fromkeys(config.matrix_kinds, row)}, config)["layers"]["q"].values()
    np.testing.assert_array_equal(made[0, 0, :4], [8, 2, -3, 0])
    draft, params = drafts["q4"]
    assert draft.num_parameters(params) == sum(params["layers"][kind].size for kind in TARGET.matrix_kinds)
