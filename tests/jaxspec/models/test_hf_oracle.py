"""Live comparison with transformers: `pytest -m oracle`, where torch and transformers are installed."""

import copy
import dataclasses
import importlib.util
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import forward_of
from odd_configs import odd_config
from window_cases import WINDOWS

from hwmodels.networks import runnable_families
from jaxspec.models import decoder
from jaxspec.models.config import decoder_config
from jaxspec.models.decoder import abstract_params
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory
from jaxspec.models.kv_cache import CachedKV, empty_cache, write_cache
from jaxspec.models.rope import Rope

# Their warnings are not ours to fix.
pytestmark = [pytest.mark.usefixtures("exact_products"), pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

GOLDEN = Path(__file__).parents[2] / "golden"
TOLERANCE = 2e-5  # of the largest expected magnitude, as in test_hf_golden
NAMES = sorted(path.name for path in (GOLDEN / "hf").iterdir() if path.is_dir())
LENGTH = 33


@pytest.fixture(scope="module")
def maker():
    """The script that made the golden files, as a module."""
    pytest.importorskip("torch").set_num_threads(1)
    pytest.importorskip("transformers")
    sys.path.insert(0, str(GOLDEN))  # its cases stand beside it
    spec = importlib.util.spec_from_file_location("make_hf_golden", GOLDEN / "make_hf_golden.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def case_of(maker, name):
    return next(case for case in maker.CASES if case.name == name)


def assert_same_logits(directory, arrays):
    model = load_directory(directory)
    expected = arrays[f"logits_{LENGTH}"]
    run = jax.jit(decoder.forward_text, static_argnames="config")
    logits = np.asarray(run(model.params, model.config, jnp.asarray(arrays[f"tokens_{LENGTH}"])).logits)
    assert np.abs(logits - expected).max() < TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", NAMES)
def test_fresh_weights(maker, name, tmp_path):
    case = dataclasses.replace(case_of(maker, name), seed=int(np.random.SeedSequence().entropy % 2**31))
    print(f"seed {case.seed}")
    assert_same_logits(tmp_path, maker.write_case(case, tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_the_golden_files_are_reproduced(maker, name, tmp_path):
    maker.write_case(case_of(maker, name), tmp_path)
    assert maker.compare(case_of(maker, name), tmp_path, GOLDEN / "hf" / name) == []


@pytest.mark.parametrize("name", NAMES)
def test_transformers_reads_what_we_write(maker, name, tmp_path):
    # Our config.json and tensors, of random bfloat16 weights, computed by both.
    model = load_directory(GOLDEN / "hf" / name)
    config = model.config
    rng = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: 0.3 * rng.standard_normal(leaf.shape, np.float32), abstract_params(config))
    save_directory(params, config, tmp_path, max_positions=512, family=model.family)
    assert_same_logits(tmp_path, maker.expected(tmp_path, seed=5))


ODD = 20


@pytest.mark.parametrize("number", range(ODD))
@pytest.mark.parametrize("family", runnable_families())
def test_odd_configurations(maker, family, number, tmp_path):
    raw = odd_config(family, number)
    print(raw)
    settings = {key: value for key, value in raw.items() if key != "model_type"}
    # Some scales are stored less 1; twice the usual ones would make softmax blow rounding errors up.
    mean = 0.0 if family.startswith(("gemma", "qwen3_5", "qwen3_next")) else 1.0
    case = maker.Case("odd", family, settings, seed=100 + number, embed_scale=0.3, vector_mean=mean)
    maker.random_model(case).save_pretrained(tmp_path)
    # Both read the file as it was drawn, not as one of them writes it.
    (tmp_path / "config.json").write_text(json.dumps(raw))
    # Some of them are so ill-conditioned that transformers' own float32 differs by more from its float64.
    arrays = maker.expected(tmp_path, seed=number, dtype=maker.torch.float64)
    assert_same_logits(tmp_path, arrays)
    assert_same_decoding(tmp_path, arrays)


def assert_same_decoding(directory, arrays):
    """Unequal prompts in one batch, padded, then the cache: four steps of one token, and one of three."""
    model, tokens, length = load_directory(directory), arrays["cached_tokens"], arrays["prompt_lengths"]
    longest, slots = int(length.max()), 30
    forward = jax.jit(forward_of, static_argnames="config")
    columns = np.arange(longest)
    spread = lambda value, width: np.broadcast_to(value[:, None], (2, width))
    result = forward(
        model.params,
        model.config,
        tokens=tokens[:, :longest],
        positions=np.broadcast_to(columns, (2, longest)),
        mask=np.asarray(decoder.causal_mask(2, longest)) & (columns < length[:, None])[:, None],
        lengths=spread(length, longest),
    )
    found = [("prefill_logits", np.asarray(result.logits)[np.arange(2), length - 1])]
    cache = write_cache(empty_cache(model.config, 2, slots), result.cache, np.zeros(2, np.int32))
    decoded = []
    for width in (1, 1, 1, 1, 3):
        seen = np.broadcast_to((np.arange(slots) < length[:, None])[:, None], (2, width, slots))
        result = forward(
            model.params,
            model.config,
            tokens=np.stack([row[start : start + width] for row, start in zip(tokens, length)]),
            positions=length[:, None] + np.arange(width),
            mask=decoder.causal_mask(2, width),
            sources=[CachedKV(cache, seen)],
            lengths=spread(length + width, width),
        )
        cache = write_cache(cache, result.cache, length)
        length = length + width
        decoded.append(np.asarray(result.logits))
    for name, logits in [*found, ("cached_logits", np.concatenate(decoded, axis=1))]:
        expected = arrays[name]
        assert np.abs(logits - expected).max() < TOLERANCE * np.abs(expected).max(), name


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_refused_where_decoding_and_forward_pass_differ(maker, name):
    family, settings, whole = WINDOWS[name]
    torch = pytest.importorskip("torch")
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "head_dim": 8}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.5}
    config = maker.transformers.AutoConfig.for_model(family, **sizes, **heads, **copy.deepcopy(settings))
    torch.manual_seed(1)
    model = maker.transformers.AutoModelForCausalLM.from_config(config).eval()
    # Longer than all windows that count.
    tokens = torch.randint(0, 64, (1, 70 if settings.get("sliding_window") == 63 else 20))
    with torch.no_grad():
        text = model(tokens, use_cache=False).logits[0]
        result = model(tokens[:, :3], use_cache=True)
        decoded = [result.logits[0]]
        for place in range(3, tokens.shape[1]):
            step = tokens[:, place : place + 1]
            result = model(step, past_key_values=result.past_key_values, use_cache=True)
            decoded.append(result.logits[0])
    difference = float((torch.cat(decoded) - text).abs().max() / text.abs().max())
    assert difference < 1e-5 if whole else difference > 1e-3


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": None},
        {"rope_theta": 5e5},
        {"rope_theta": 5e5, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 100}},
        {"rope_scaling": LLAMA3, "max_position_embeddings": 77},
        {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 33}, "original_max_position_embeddings": 55},
        {"rope_parameters": LLAMA3 | {"rope_theta": 3e5}, "rope_theta": 7e5},
        {"rope_parameters": {"rope_theta": 3e5}, "rope_scaling": LLAMA3},
        {"rope_scaling": {"type": "default"}},
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-5, "head_dim": 20, "num_key_value_heads": 4},
    ],
)
def test_config_json_is_read_alike(maker, family, changes):
    sizes = {"vocab_size": 64, "hidden_size": 256, "intermediate_size": 48, "num_hidden_layers": 2}
    raw = sizes | {"model_type": family, "num_attention_heads": 32} | changes
    ours = decoder_config(raw)
    theirs = maker.transformers.AutoConfig.for_model(**copy.deepcopy(raw))  # which it fills in
    assert (ours.num_kv_heads, ours.head_dim) == (theirs.num_key_value_heads, theirs.head_dim)
    assert (ours.norm_eps, ours.tie_embeddings) == (theirs.rms_norm_eps, theirs.tie_word_embeddings)
    theirs.tie_word_embeddings, theirs.vocab_size = True, 8
    rotary = maker.transformers.AutoModelForCausalLM.from_config(theirs).model.rotary_emb
    frequencies = Rope(ours.rope_theta, ours.rope_scaling).frequencies(ours.rotated_elements, np.array(1))
    np.testing.assert_allclose(frequencies, rotary.inv_freq.numpy(), rtol=1e-6)
