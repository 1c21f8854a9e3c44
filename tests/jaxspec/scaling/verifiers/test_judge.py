"""A judge's probabilities are those of its network for what stands up to the marks."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.scaling.verifiers.judge import Judge

pytestmark = pytest.mark.signals

CONFIG = DecoderConfig(
    vocab_size=128, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=6
)
MARKS = (5, 9)


@pytest.fixture(scope="module")
def judge(random_network):
    return Judge(random_network(CONFIG, 8, sharpness=3.0), CONFIG, MARKS)


def test_the_last_mark_decides(judge):
    prompt = np.array([5, 7, 9], np.int32)
    texts = [np.array(text, np.int32) for text in ([1, 5, 2, 9, 3], [1, 2, 5], [1, 2, 3], [])] * 6
    found = judge(prompt, texts)
    for text, score in zip(texts, found, strict=True):
        marked = np.flatnonzero(np.isin(text, MARKS))
        if not marked.size:
            assert np.isnan(score)
            continue
        whole = np.concatenate([prompt, text[: marked[-1] + 1]])
        logits = np.asarray(forward_text(judge.params, CONFIG, jnp.asarray(whole)[None]).logits[0], np.float64)
        chance = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        told = [chance[place - 1, whole[place]] for place in range(len(prompt), len(whole))]
        assert score == pytest.approx(np.prod(told), rel=1e-4)
    assert len(set(np.round(np.log(found[~np.isnan(found)]), 3))) == 2
