import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxspec.errors import InputError
from jaxspec.models import embedded
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import abstract_params, forward_text
from jaxspec.models.hf_export import save_directory

BYTES = DecoderConfig(
    vocab_size=256, hidden_size=6, intermediate_size=4, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=4
)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for the package's own folder, without weights."""
    monkeypatch.setattr(embedded, "__file__", str(tmp_path / "package" / "embedded.py"))
    return tmp_path / "package" / "embedded"


def save(directory, seed):
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape, np.float32), abstract_params(BYTES))
    save_directory(params, BYTES, directory, max_positions=8)


def test_the_name_opens_the_package_and_a_path_a_directory(package, tmp_path, monkeypatch):
    save(package, 0)
    save(tmp_path / "embedded", 1)
    monkeypatch.chdir(tmp_path)
    assert embedded.embedded_directory() == package
    own = embedded.load_model("embedded")
    assert own.directory == package
    for path in ("./embedded", tmp_path / "embedded"):
        other = embedded.load_model(path, dtype=jnp.float32)
        assert other.directory.resolve() == tmp_path / "embedded"
        assert other.params["embed"].dtype == jnp.float32
        assert not np.array_equal(other.params["embed"], own.params["embed"].astype(jnp.float32))


def test_its_tokens_are_bytes(package):
    save(package, 0)
    tokenizer = embedded.load_model("embedded").tokenizer
    np.testing.assert_array_equal(tokenizer.encode("é"), [0xC3, 0xA9])


def test_what_is_neither_is_an_error():
    with pytest.raises(InputError, match="'embeded' does not exist"):
        embedded.load_model("embeded")


@pytest.mark.parametrize("name", embedded.NETWORK_NAMES)
def test_the_shipped_networks_load(name):
    model = embedded.load_model(name)
    assert model.config.vocab_size == 256
    assert model.params["embed"].dtype == jnp.bfloat16
    assert sum(leaf.size for leaf in jax.tree.leaves(model.params)) == model.config.num_parameters()


def test_a_loaded_network_is_a_module_of_the_same_parameters(tmp_path):
    save(tmp_path, 0)
    tokens = jnp.array([[3, 1, 4, 1, 5, 9]])
    model = embedded.load_model(tmp_path, dtype=jnp.float32)
    module = model.module()
    chex.assert_trees_all_equal(nnx.to_pure_dict(nnx.split(module)[1]), model.params)
    np.testing.assert_array_equal(module(tokens), forward_text(model.params, model.config, tokens).logits)
    _, slopes = nnx.value_and_grad(lambda module: jnp.square(module(tokens)).sum())(module)
    loss = lambda params: jnp.square(forward_text(params, model.config, tokens).logits).sum()
    chex.assert_trees_all_close(nnx.to_pure_dict(slopes), jax.grad(loss)(model.params), rtol=1e-5, atol=1e-4)
    with pytest.raises(InputError, match="a network that is streamed or in codes is no module"):
        embedded.load_model(tmp_path, stream=True).module()
    assert repr(model) == f"<target of llama: {model.config.num_parameters():,} parameters; in {tmp_path}>"
    with pytest.raises(ValueError, match="give whole numbers, a row for each text"):
        module(tokens[:, :0])
