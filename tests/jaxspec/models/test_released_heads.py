"""Heads of releases, each in its own format, against a loop over places written by hand."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hwmodels.networks import running_row
from hwmodels.networks.families import family_called
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig, decoder_config
from jaxspec.models.decoder import abstract_params, forward_text, init_params
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory
from jaxspec.models.kv_cache import KVCache
from jaxspec.models.norms import NORMS
from jaxspec.models.stored_parameters import network_parameters, stored_tensors
from jaxspec.speculate.drafts import Committed, Level, Root, check_draft, make_draft

H, VOCAB, LAYERS, WIDE = 12, 13, 7, 10
TARGET = DecoderConfig(
    vocab_size=VOCAB, hidden_size=H, intermediate_size=9, num_layers=LAYERS, num_heads=4, num_kv_heads=2, head_dim=4
)
#: A layer of its own sizes: query heads, heads of keys and values, elements of one, inner channels.
HEADS, KV_HEADS, DIM, INNER, THETA, EPS = 3, 1, 6, 7, 500.0, 1e-3
LLAMA = {"hidden_size": H, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM}
LLAMA |= {"model_type": "llama", "num_hidden_layers": 1, "intermediate_size": INNER, "vocab_size": VOCAB}
LLAMA |= {"rms_norm_eps": EPS, "rope_theta": THETA, "hidden_act": "silu", "max_position_embeddings": 64}

#: Tokens of the reduced vocabulary.
KNOWN = np.array([1, 2, 4, 7, 8, 11])
MAPS = {"d2t": KNOWN - np.arange(len(KNOWN)), "t2d": np.isin(np.arange(VOCAB), KNOWN)}

RNG = np.random.default_rng(5)
TEXT = RNG.integers(VOCAB, size=16).astype(np.int32)


def drawn(*shape):
    value = (shape[-1] ** -0.5 if len(shape) > 1 else 0.5) * RNG.standard_normal(shape) + (len(shape) == 1)
    return value.astype(ml_dtypes.bfloat16)


def layer_tensors(place, columns, width=H):
    """A Llama layer whose attention reads so many columns."""
    rows = {"q": HEADS * DIM, "k": KV_HEADS * DIM, "v": KV_HEADS * DIM}
    found = {f"self_attn.{name}_proj": drawn(count, columns) for name, count in rows.items()}
    found |= {"self_attn.o_proj": drawn(width, HEADS * DIM), "post_attention_layernorm": drawn(width)}
    found |= {f"mlp.{name}_proj": drawn(INNER, width) for name in ("gate", "up")}
    found |= {"mlp.down_proj": drawn(width, INNER)}
    return {f"{place}{name}.weight": value for name, value in found.items()}


def third_tensors(place, width=H, rows=None, features=3 * H):
    found = layer_tensors(place, 2 * width, width) | {"fc.weight": drawn(width, features), "norm.weight": drawn(width)}
    found |= {f"{place}{name}.weight": drawn(width) for name in ("input_layernorm", "hidden_norm")}
    return found | {"lm_head.weight": drawn(rows or len(KNOWN), width)}


def unit(x, weight, eps=EPS):
    return x / np.sqrt(np.mean(x * x) + eps) * weight


def turned(x, position):
    """Rotated by halves, head by head."""
    angle = position * THETA ** (-np.arange(0, DIM, 2) / DIM)
    one, two = x[:, : DIM // 2], x[:, DIM // 2 :]
    return np.concatenate([one * np.cos(angle) - two * np.sin(angle), two * np.cos(angle) + one * np.sin(angle)], -1)


def by_places(form, w, tokens, features):
    """Logits after each place: places with features of the target first, then those that read the head's own output."""
    place = form["layer"]
    of = lambda name: w[f"{place}{name}.weight"]
    keys, values, logits, carried = [], [], [], None
    for t, token in enumerate(tokens):
        state = form["read"](w, features[t]) if t < len(features) else carried
        residual, attending = form["enter"](w, form["embed"](w)[token], state)
        query, key, value = ((of(f"self_attn.{kind}_proj") @ attending).reshape(-1, DIM) for kind in ("q", "k", "v"))
        keys.append(turned(key, t)), values.append(value)
        heads = []
        for head, vector in enumerate(turned(query, t)):
            group = head * KV_HEADS // HEADS
            scores = np.array([vector @ key[group] for key in keys]) * DIM**-0.5
            chance = np.exp(scores - scores.max())
            heads.append(sum(c * v[group] for c, v in zip(chance / chance.sum(), values)))
        x = residual + of("self_attn.o_proj") @ np.concatenate(heads)
        inner = unit(x, of("post_attention_layernorm"))
        gate = of("mlp.gate_proj") @ inner
        carried = x + of("mlp.down_proj") @ (gate / (1 + np.exp(-gate)) * (of("mlp.up_proj") @ inner))
        logits.append(form["logits"](w, carried))
    return np.array(logits)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    rng = np.random.default_rng(2)
    draw = lambda leaf: jnp.asarray((0.4 * rng.standard_normal(leaf.shape)).astype(ml_dtypes.bfloat16))
    params = jax.tree.map(draw, abstract_params(TARGET))
    save_directory(params, TARGET, folder, max_positions=64)
    return load_directory(folder, dtype=np.float32)


def inputs_of(target, layer):
    """What enters a layer: what a network of the layers before it puts out."""
    few = jax.tree.map(lambda leaf: leaf[:layer], target.params["layers"])
    if layer == 0:
        return np.asarray(target.params["embed"], np.float64)[TEXT]
    config = dataclasses.replace(target.config, num_layers=layer)
    return np.asarray(forward_text(target.params | {"layers": few}, config, TEXT[None]).hidden[0], np.float64)


def side_by_side(target, *layers):
    return np.concatenate([inputs_of(target, layer) for layer in layers], axis=-1)


def written(folder, raw, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(raw))
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / "model.safetensors")
    return str(folder)


def first_form(target, layer="layers.0.", mixing="fc"):
    """EAGLE: the feature is behind the target's final norm."""
    wide = lambda value: np.asarray(value, np.float64)

    def enter(w, token, state):
        x = w[f"{mixing}.weight"] @ np.concatenate([token, state]) + w.get(f"{mixing}.bias", 0)
        return x, x

    return {
        "layer": layer,
        "features": inputs_of(target, LAYERS),
        "read": lambda w, hidden: unit(hidden, wide(target.params["final_norm"]), TARGET.norm_eps),
        "embed": lambda w: w.get("embed_tokens.weight", wide(target.params["embed"])),
        "enter": enter,
        "logits": lambda w, x: wide(target.params["lm_head"]) @ x,
    }


def third_form(target, layers, layer, *, normed_residual=False, normed_input=False):
    """EAGLE-3: a reduced vocabulary, token and state side by side."""

    def enter(w, token, state):
        normed = unit(state, w[f"{layer}hidden_norm.weight"])
        both = np.concatenate([unit(token, w[f"{layer}input_layernorm.weight"]), normed])
        return normed if normed_residual else state, both

    def logits(w, x):
        own = w["lm_head.weight"] @ unit(x, w["norm.weight"])
        found = np.full(VOCAB, -np.inf)
        found[KNOWN if len(own) < VOCAB else np.arange(VOCAB)] = own
        return found

    return {
        "layer": layer,
        "features": side_by_side(target, *layers),
        "read": lambda w, x: w["fc.weight"] @ (unit(x, w["input_norm.weight"]) if normed_input else x),
        "embed": lambda w: w.get("embed_tokens.weight", np.asarray(target.params["embed"], np.float64)),
        "enter": enter,
        "logits": logits,
    }


def eagle(target):
    tensors = layer_tensors("layers.0.", H) | {"fc.weight": drawn(H, 2 * H), "fc.bias": drawn(H)}
    return LLAMA | {"architectures": ["LlamaForCausalLM"]}, tensors, first_form(target)


def eagle_of_speculators(target):
    tensors = layer_tensors("transformer.", H) | {"fusion_fc.weight": drawn(H, 2 * H)}
    raw = {"speculators_model_type": "eagle", "transformer_layer_config": LLAMA, "layernorms": False}
    return raw, tensors | {"embed_tokens.weight": drawn(VOCAB, H)}, first_form(target, "transformer.", "fusion_fc")


def eagle3(target):
    raw = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(KNOWN)}
    return raw, third_tensors("midlayer.") | MAPS, third_form(target, (2, 3, 4), "midlayer.")


def eagle3_of_specforge(target):
    # The layers are numbered by what they put out; head and embedding are narrower than the target.
    inner = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [0, 3, 5]}
    raw = LLAMA | {"hidden_size": WIDE, "target_hidden_size": H, "draft_vocab_size": VOCAB, "eagle_config": inner}
    tensors = third_tensors("midlayer.", WIDE, VOCAB) | {"embed_tokens.weight": drawn(VOCAB, WIDE)}
    return raw, tensors, third_form(target, (1, 4, 6), "midlayer.")


def eagle3_of_speculators(target):
    raw = {"speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"], "draft_vocab_size": len(KNOWN)}
    raw |= {"transformer_layer_config": LLAMA, "norm_before_residual": True, "norm_before_fc": True}
    raw |= {"eagle_aux_hidden_state_layer_ids": [7, 0, 3], "speculators_config": {"algorithm": "eagle3"}}
    tensors = third_tensors("layers.0.") | MAPS | {"input_norm.weight": drawn(3 * H)}
    form = third_form(target, (0, 3, 7), "layers.0.", normed_residual=True, normed_input=True)
    return raw, tensors, form


FORMS = (eagle, eagle_of_speculators, eagle3, eagle3_of_specforge, eagle3_of_speculators)

PROMPT, BRANCHES = 5, ((3,), (8,), (8, 2), (8, 2, 6))


def played(ready, features):
    """Logits after a root, and after the last token of each of `BRANCHES`, in two cycles: (root, branch, logits)."""
    draft, params = ready
    memory, numbers = draft.empty(params, 1, 32, 8), 8
    commit, extend = jax.jit(draft.commit), jax.jit(draft.extend)
    found = []
    for start, root in ((0, PROMPT), (PROMPT, PROMPT + 2)):
        window = slice(start, root)
        memory = commit(params, memory, Committed(
            jnp.asarray(TEXT[start + 1 : root + 1])[None], jnp.asarray(features[window], jnp.float32)[None], KVCache((), ()),
            jnp.array([start]), jnp.asarray(TEXT[start : start + 1]), jnp.array([root - start]),
        ))  # fmt: skip
        at = Root(jnp.asarray(TEXT[root : root + 1]), jnp.array([root]))
        logits, inside = draft.open(params, memory, at)
        found.append((root, (), logits[0]))
        # Number 1 and 2 below the root, 3 below 2, 4 below 3.
        above = {1: (0,), 2: (0,), 3: (0, 2), 4: (0, 2, 3)}
        for names in ((1, 2), (3,), (4,)):
            level = Level(
                jnp.array([[BRANCHES[name - 1][-1] for name in names]]), jnp.array(names[0]),
                jnp.array([[len(above[name]) for name in names]]), jnp.array([[above[name][-1] for name in names]]),
                jnp.array([[[number in above[name] for number in range(numbers)] for name in names]]),
            )  # fmt: skip
            logits, inside = extend(params, inside, at, level)
            found += [(root, BRANCHES[name - 1], logits[0, place]) for place, name in enumerate(names)]
    return found


def compared(found, wanted):
    """Largest error of all logits, those of unknown tokens apart; how many were compared."""
    errors = []
    for root, branch, logits in found:
        right = wanted(root, branch)
        known = np.isfinite(right)
        assert np.all(np.asarray(logits)[~known] < -1e30)
        errors.append(np.max(np.abs(np.asarray(logits)[known] - right[known])))
    return max(errors), len(errors)


def against_the_loop(folder, target, form, tensors):
    w = {name: np.asarray(value, np.float64) for name, value in tensors.items()}

    def wanted(root, branch):
        tokens = np.concatenate([TEXT[1 : root + 1], branch]).astype(int)
        return by_places(form, w, tokens, form["features"][:root])[-1]

    with jax.default_matmul_precision("highest"):
        return compared(played(make_draft(folder, target), form["features"]), wanted)


@pytest.mark.parametrize("make", FORMS, ids=lambda make: make.__name__)
def test_each_release_computes_what_a_loop_over_places_does(target, tmp_path, make):
    raw, tensors, form = make(target)
    folder = written(tmp_path / "head", raw, tensors)
    check_draft(folder, target.config, str(target.directory))
    error, count = against_the_loop(folder, target, form, tensors)
    assert count == 10
    assert error < 2e-4


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (eagle, lambda form: form | {"read": lambda w, hidden: hidden}),
        (eagle3, lambda form: form | {"features": np.roll(form["features"], H, axis=-1)}),
        (eagle3_of_speculators, lambda form: form | {"read": lambda w, x: w["fc.weight"] @ x}),
    ],
    ids=["not normed", "another order of layers", "not normed before fc"],
)
def test_the_loop_notices_a_wrong_rule(target, tmp_path, make, wrong):
    raw, tensors, form = make(target)
    folder = written(tmp_path / "head", raw, tensors)
    other = wrong(form)
    features = form["features"]
    w = {name: np.asarray(value, np.float64) for name, value in tensors.items()}
    wanted = lambda root, branch: by_places(
        other, w, np.concatenate([TEXT[1 : root + 1], branch]).astype(int), other["features"][:root]
    )[-1]
    assert compared(played(make_draft(folder, target), features), wanted)[0] > 1e-2


def test_a_target_gives_the_inputs_of_the_layers_asked_for(target):
    result = forward_text(target.params, target.config, TEXT[None], hidden_of=(0, 3, 7))
    np.testing.assert_allclose(result.inner[0], side_by_side(target, 0, 3, 7), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(result.inner[..., 2 * H :], result.hidden)


@pytest.mark.parametrize(
    ("change", "tensor", "message"),
    [
        ({"num_hidden_layers": 2}, {}, "2 layers is not modelled"),
        ({"vocab_size": 14}, {}, "vocab_size 14; the target has 13"),
        ({"hidden_size": 14}, {}, "hidden_size 14; the target has 12"),
        ({"norm_output": True}, {}, "norm_output True; a head with it does not run"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, {}, "use_aux_hidden_state False; allowed is true"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 8]}, {}, "inputs of layers [1, 2, 8] of a target of 7"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, {}, "has shape (12, 36); its config.json needs (12, 24)"),
        ({"model_type": "dbrx"}, {}, "model_type 'dbrx'"),
        ({"draft_vocab_size": "all"}, {}, "draft_vocab_size is 'all'; it must be a whole number"),
        ({}, {"d2t": None}, "no tensor 'd2t'; a head of 6 tokens needs it"),
        ({}, {"d2t": MAPS["d2t"] * 0 - 1}, "it must be 6 steps to as many different tokens of 13"),
        ({}, {"t2d": ~MAPS["t2d"]}, "'d2t' and 't2d' in"),
        ({}, {"midlayer.extra.weight": drawn(H)}, "has tensor 'midlayer.extra.weight'"),
        ({"architectures": ["DFlashDraftModel"]}, {}, "a DFlash head, which does not run; those that do"),
    ],
)  # fmt: skip
def test_a_head_that_does_not_fit_is_refused_in_one_line(target, tmp_path, change, tensor, message):
    raw, tensors, _ = eagle3(target)
    tensors = {name: value for name, value in (tensors | tensor).items() if value is not None}
    folder = written(tmp_path / "head", raw | change, tensors)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        check_draft(folder, target.config, str(target.directory))
    assert "\n" not in str(error.value)


# A network's own layer for further tokens: what is mixed is worked by hand, the layer is one of a network of one layer.

SHARED = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": EPS,
}
SHARED |= {"intermediate_size": 12, "max_position_embeddings": 64, "rope_theta": 900.0, "tie_word_embeddings": False}
MOE = {"moe_intermediate_size": 6, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "n_shared_experts": 1}
MOE |= {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.5, "norm_topk_prob": True}
LINEAR = {"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4}
LINEAR |= {"linear_conv_kernel_dim": 3, "head_dim": 8, "num_hidden_layers": 4, "full_attention_interval": 4}
NEXT = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6, "shared_expert_intermediate_size": 5}

_DEEPSEEK = (
    {"fc": "eh_proj", "embed_norm": "enorm", "hidden_norm": "hnorm", "final_norm": "shared_head.norm"},
    "{layer}",
)
_QWEN = (
    {"fc": "fc", "embed_norm": "pre_fc_norm_embedding", "hidden_norm": "pre_fc_norm_hidden", "final_norm": "norm"},
    "mtp.",
)
_MIMO = (
    {
        "fc": "input_proj",
        "embed_norm": "token_layernorm",
        "hidden_norm": "hidden_layernorm",
        "final_norm": "final_layernorm",
    },
    "{layer}",
)

#: config.json, beginning of the layer's tensors, names of what is outside of it; whether it reads the state before the token,
#: nothing of the first token, and goes on from the normed state.
OWN = {
    "glm4_moe": (SHARED | MOE | {"num_hidden_layers": 2, "head_dim": 4}, "model.layers.2.", _DEEPSEEK, (0, 1, 0)),
    "deepseek_v3": (
        SHARED | MOE | {"num_hidden_layers": 2, "num_key_value_heads": 4, "q_lora_rank": 6, "kv_lora_rank": 5}
        | {"qk_rope_head_dim": 4, "qk_nope_head_dim": 3, "v_head_dim": 3},
        "model.layers.2.", _DEEPSEEK, (0, 1, 0),
    ),
    "qwen3_next": (SHARED | LINEAR | NEXT, "mtp.layers.0.", _QWEN, (0, 0, 1)),
    "qwen3_5_text": (SHARED | LINEAR, "mtp.layers.0.", _QWEN, (0, 0, 1)),
    "mimo": (SHARED | {"num_hidden_layers": 2}, "model.mtp_layers.0.", _MIMO, (1, 1, 1)),
}  # fmt: skip


def random_values(config, seed):
    """Parameters that survive storage in bfloat16."""
    rng, params = np.random.default_rng(seed), init_params(config, jax.random.key(seed))
    draw = lambda leaf: jnp.asarray(
        (leaf + 0.3 * rng.standard_normal(leaf.shape)).astype(ml_dtypes.bfloat16), jnp.float32
    )
    return jax.tree.map(draw, params)


def network_with_own_head(folder, name):
    raw, layer, (ends, outside), rule = OWN[name]
    raw = raw | {"model_type": name}
    config = decoder_config(raw)
    row = running_row(family_called(name))
    params = random_values(config, 1)
    tensors = stored_tensors(params, network_parameters(config, row))
    kinds = {"attention": config.attention[-1:], "feed_forward": config.blocks(config.num_layers - 1)[1:]}
    experts = config.experts if "num_experts" in raw or "n_group" in raw else None
    sizes = {"num_layers": 1, "linear": None, "vocab_size": PROMPT + 8, "experts": experts}
    one = dataclasses.replace(config, **sizes, **kinds)
    alone = random_values(one, 2)
    for tensor, value in stored_tensors(alone, network_parameters(one, row)).items():
        if "layers.0." in tensor:
            tensors[layer + tensor.split("layers.0.")[1]] = value
    width = config.hidden_size
    own = {end: drawn(width, 2 * width) if end == "fc" else drawn(width) for end in ends}
    tensors |= {f"{outside.format(layer=layer)}{tensor}.weight": own[end] for end, tensor in ends.items()}
    if name == "glm4_moe":  # with copies of the network's ends
        tensors |= {f"{layer}embed_tokens.weight": tensors["model.embed_tokens.weight"]}
        tensors |= {f"{layer}shared_head.head.weight": tensors["lm_head.weight"]}
    folder = written(folder, raw | {"num_nextn_predict_layers": 1}, tensors)
    return folder, config, params, (one, alone, own, rule)


@pytest.mark.network("glm4_moe")
@pytest.mark.parametrize("name", OWN)
def test_a_networks_own_layer_drafts_as_its_parts_say(tmp_path, name):
    folder, config, params, (one, alone, own, (state_first, blind, carries_normed)) = network_with_own_head(
        tmp_path / "net", name
    )
    loaded = load_directory(folder, dtype=np.float32)
    check_draft("mtp", loaded.config, folder)
    norm = lambda x, weight: NORMS[config.norm].apply(x, {"w": jnp.asarray(weight, jnp.float32)}, "w", EPS)
    with jax.default_matmul_precision("highest"):
        hidden = forward_text(params, config, TEXT[None]).hidden[0]

        def wanted(root, branch):
            tokens = np.concatenate([TEXT[1 : root + 1], branch]).astype(int)
            states = list(norm(hidden[:root], params["final_norm"]))
            rows = []
            for t, token in enumerate(tokens):
                word = 0 * params["embed"][token] if blind and t == 0 else params["embed"][token]
                parts = [norm(word, own["embed_norm"]), norm(states[t], own["hidden_norm"])]
                rows.append(
                    jnp.asarray(own["fc"], jnp.float32) @ jnp.concatenate(parts[::-1] if state_first else parts)
                )
                rest = jnp.zeros((one.vocab_size - len(rows), len(rows[0])))
                table = alone | {"embed": jnp.concatenate([jnp.stack(rows), rest])}
                if t + 1 < len(states) and t + 1 < len(tokens):
                    continue
                out = run(table, jnp.arange(one.vocab_size)[None]).hidden[0, t]
                read = norm(out, own["final_norm"])
                states += [read if carries_normed else out] if t + 1 == len(states) else []
            return np.asarray(params["lm_head"] @ read)

        run = jax.jit(lambda params, tokens: forward_text(params, one, tokens))
        error, count = compared(played(make_draft("mtp", loaded), hidden), wanted)
    assert count == 10
    assert error < 5e-4


def test_a_network_without_such_a_layer_is_refused(target, tmp_path):
    with pytest.raises(InputError, match="has no layer for further tokens of a form that runs here"):
        check_draft("mtp", target.config, str(target.directory))
    folder, config, *_ = network_with_own_head(tmp_path / "net", "qwen3_5_text")
    tensors = load_file(f"{folder}/model.safetensors")
    save_file(tensors | {"mtp.layers.1.x.weight": drawn(3)}, f"{folder}/model.safetensors")
    with pytest.raises(InputError, match=r"several layers for further tokens \(mtp.layers.1.\)"):
        check_draft("mtp", config, folder)
