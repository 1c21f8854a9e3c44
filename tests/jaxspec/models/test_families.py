import pytest
from window_cases import WINDOWS

from jaxspec.models.config import DecoderConfig
from jaxspec.models.families import decoder_config
from jaxspec.models.sizes import RopeScaling

SIZES = {
    "vocab_size": 97,
    "hidden_size": 192,
    "intermediate_size": 50,
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.5, "high_freq_factor": 4.0}


def read(family, **changes):
    return decoder_config(SIZES | {"model_type": family} | changes)


def test_llama_defaults_of_absent_keys():
    assert read("llama") == DecoderConfig(
        vocab_size=97,
        hidden_size=192,
        intermediate_size=50,
        num_layers=3,
        num_heads=16,
        num_kv_heads=16,
        head_dim=12,
        rope_theta=10_000.0,
        norm_eps=1e-6,
    )


def test_qwen3_defaults_of_absent_keys():
    config = read("qwen3", num_attention_heads=64)
    assert (config.num_kv_heads, config.head_dim, config.qk_norm, config.tie_embeddings) == (32, 128, True, False)
    assert (config.rope_theta, config.norm_eps) == (10_000.0, 1e-6)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_null_heads_mean_one_kv_head_per_query_head_and_null_head_dim_an_even_share(family):
    config = read(family, num_key_value_heads=None, head_dim=None)
    assert (config.num_kv_heads, config.head_dim) == (16, 12)


@pytest.mark.parametrize(
    ("changes", "theta", "original"),
    [
        ({"rope_theta": 7e5}, 7e5, None),
        ({"rope_theta": 7e5, "rope_scaling": None}, 7e5, None),
        ({"rope_theta": 7e5, "rope_scaling": {"rope_type": "default"}}, 7e5, None),
        ({"rope_parameters": {"rope_theta": 3e5, "rope_type": "default"}}, 3e5, None),
        ({"rope_parameters": {"rope_theta": 3e5}, "rope_theta": 7e5}, 3e5, None),
        ({"rope_theta": 7e5, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 500}}, 7e5, 500),
        ({"rope_parameters": LLAMA3 | {"rope_theta": 3e5, "original_max_position_embeddings": 500}}, 3e5, 500),
        ({"rope_scaling": {"type": "llama3"} | {k: LLAMA3[k] for k in LLAMA3 if k != "rope_type"}}, 1e4, 2048),
        ({"rope_scaling": LLAMA3, "max_position_embeddings": 700}, 1e4, 700),
        (
            {
                "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 500},
                "original_max_position_embeddings": 600,
            },
            1e4,
            600,
        ),
        # Both spellings: the older one counts.
        ({"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 3e5}}, 1e4, 2048),
    ],
)
def test_both_spellings_of_the_rotary_settings(changes, theta, original):
    config = read("llama", **changes)
    assert config.rope_theta == theta
    assert config.rope_scaling == (None if original is None else RopeScaling(32.0, 1.5, 4.0, original))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen3_moe"}, "'qwen3_moe' is not modelled; known: llama, mistral, qwen2, qwen3"),
        ({"model_type": ["llama"]}, "is not modelled"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu'"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"mlp_bias": True}, "mlp_bias = True"),
        ({"model_type": "qwen3", "use_sliding_window": True}, "use_sliding_window = True"),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is not modelled; known: default, llama3"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "per layer type"),
    ],
)
def test_what_is_not_modelled_is_named(changes, message):
    with pytest.raises(NotImplementedError, match=message):
        read("llama", **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": None}, "vocab_size is None; it must be an integer of at least 1"),
        ({"hidden_size": 192.0}, r"hidden_size is 192\.0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"intermediate_size": "50"}, "intermediate_size is '50'"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_attention_heads": 193}, "head_dim is 0"),
        ({"num_key_value_heads": 3}, "16 query heads cannot share 3 KV heads"),
        ({"head_dim": 11}, "head_dim is 11; rotary embeddings need an even one"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings is None; it must be true or false"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; it must be a finite number above 0"),
        ({"rope_theta": -1}, "rope_theta is -1"),
        ({"rope_theta": 10**400}, "rope_theta is 10"),
        ({"rope_scaling": "llama3"}, "they must be an object"),
        ({"rope_scaling": LLAMA3 | {"factor": None}}, "factor is None"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, "the second must be larger"),
    ],
)
def test_what_makes_no_sense_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        read("llama", **changes)


def test_neutral_keys_are_read_over():
    neutral = {
        "layer_types": ["full_attention"] * 3,
        "quantization_config": None,
        "partial_rotary_factor": 1.0,
        "sliding_window": 4096,
        "pretraining_tp": 1,
        "torch_dtype": "bfloat16",
    }
    assert read("llama", **neutral) == read("llama")


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_that_transformers_heeds_only_in_its_cache_is_refused(name):
    family, settings, whole = WINDOWS[name]
    settings = settings | {"num_key_value_heads": 4}
    if whole:
        assert read(family, **settings) == read(family, num_key_value_heads=4)
    else:
        with pytest.raises(
            NotImplementedError, match=r"(sliding_window|chunk_size) = \d+ is ambiguous.*allowed is null"
        ):
            read(family, **settings)


@pytest.mark.parametrize("value", [True, "8", -1, 1.5, [8], {}])
def test_a_window_that_is_no_number_is_refused(value):
    with pytest.raises(NotImplementedError, match=r"sliding_window = .* is ambiguous"):
        read("llama", sliding_window=value)
