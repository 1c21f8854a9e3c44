import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.train_draft_head import documentation, unroll
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params
from jaxspec.models.draft_head import abstract_head_params, head_logits, target_ends
from jaxspec.models.kv_cache import KVCache
from jaxspec.speculate.drafts.head_draft import HeadDraft, HeadDraftParams
from jaxspec.speculate.drafts.interface import Committed, Level, Root

pytestmark = pytest.mark.network

TARGET = DecoderConfig(
    vocab_size=7, hidden_size=8, intermediate_size=6, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4
)
HEAD = DecoderConfig(
    vocab_size=7, hidden_size=8, intermediate_size=10, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=6
)
BATCH, PLACES, DEPTH, EVERY, OFFSET = 2, 14, 4, 3, 1


def random(abstract, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * rng.standard_normal(leaf.shape, np.float32)), abstract)


@pytest.fixture(scope="module")
def head():
    return random(abstract_head_params(HEAD), 0)


@pytest.fixture(scope="module")
def target():
    return random(abstract_params(TARGET), 1)


# Compiling is what these tests spend their time on, and the networks are tiny.
@jax.jit
def drafted_chain(head, ends, tokens, hidden, root_place):
    """Logits at depths 1.. of a chain that decoding drafts along the text, with the root's place given."""
    draft, params = HeadDraft(HEAD), HeadDraftParams(head, ends)
    memory = draft.empty(params, BATCH, 2 * PLACES, DEPTH)
    count = root_place + 1
    window = Committed(
        tokens=tokens[:, 1:],
        hidden=hidden,
        cache=KVCache((), ()),
        start=jnp.zeros(BATCH, jnp.int32),
        before=tokens[:, 0],
        valid=jnp.full(BATCH, count),
    )
    memory = draft.commit(params, memory, window)
    root = Root(tokens[:, count], jnp.full(BATCH, count))
    logits, memory = draft.open(params, memory, root)
    chain = [logits]
    for depth in range(1, DEPTH):
        level = Level(
            tokens=tokens[:, count + depth][:, None],
            first=jnp.asarray(depth),
            depth=jnp.full((BATCH, 1), depth),
            parent=jnp.full((BATCH, 1), depth - 1),
            ancestors=jnp.broadcast_to(jnp.arange(DEPTH) < depth, (BATCH, 1, DEPTH)),
        )
        logits, memory = draft.extend(params, memory, root, level)
        chain.append(logits[:, 0])
    return jnp.stack(chain, axis=1)


def test_training_sees_what_decoding_sees(head, target):
    rng = np.random.default_rng(2)
    tokens = jnp.asarray(rng.integers(7, size=(BATCH, PLACES + 1)), jnp.int32)
    hidden = jnp.asarray(rng.standard_normal((BATCH, PLACES, 8), np.float32))
    ends = target_ends(target)
    with jax.default_matmul_precision("highest"):
        options = {"depth": DEPTH, "root_every": EVERY, "options": {}}
        run = jax.jit(lambda head, offset: unroll(head, HEAD, ends, tokens, hidden, offset=offset, **options))
        depths = run(head, OFFSET)
        # Chains at 1, 4, 7: three of stride 3 fit in 14 places at any offset, with three places below each.
        np.testing.assert_array_equal([place for _, place in depths[1:]], [[2, 5, 8], [3, 6, 9], [4, 7, 10]])
        for chain, root_place in enumerate((1, 4, 7)):
            wanted = drafted_chain(head, ends, tokens, hidden, root_place)
            first = head_logits(depths[0][0][:, root_place], ends, HEAD)
            later = [head_logits(states[:, chain], ends, HEAD) for states, _ in depths[1:]]
            np.testing.assert_allclose(np.stack([first, *later], axis=1), wanted, rtol=2e-4, atol=2e-5)


def test_documentation_has_long_docstrings_and_no_tests(tmp_path):
    long = "A sentence of the standard library. " * 20
    for name, text in (("module.py", long), ("short.py", "Brief."), ("test/test_module.py", long.upper())):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f'def function():\n    """{text}"""\n')
    english = documentation(tmp_path)
    assert long.strip() in english
    assert "Brief." not in english
    assert long.upper().strip() not in english
    assert "Boolean operations" in english  # help texts of the language reference
