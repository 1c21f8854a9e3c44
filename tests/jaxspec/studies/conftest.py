"""A network small enough to tune in seconds, as a Hugging Face directory, and text to tune it on."""

import jax
import pytest

from jaxspec.models import DecoderConfig, init_params, save_directory

TINY = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6
)

#: Settings that make a whole run a matter of seconds.
SMALL = {
    "prompts": 3,
    "prompt_tokens": 12,
    "output_tokens": 10,
    "calibration_prompts": 4,
    "steps": 4,
    "uniform_steps": 3,
    "windows_per_step": 2,
    "continuation_tokens": 10,
}


@pytest.fixture(scope="module", autouse=True)
def _optax_promotes():
    # optax's Adam raises a float to an integer power, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session")
def small():
    return SMALL


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny"
    params = jax.tree.map(lambda x: 3.0 * x if x.ndim > 2 else x, init_params(TINY, jax.random.key(3)))
    save_directory(params, TINY, directory, max_positions=128)
    return directory


@pytest.fixture(scope="session")
def some_text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"line {i}: {i * i % 97} and {i % 7}\n" for i in range(200)))
    return path
