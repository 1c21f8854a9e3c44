"""A small network with linear attention in most layers, and the recurrence of its layers by hand."""

import numpy as np
from decoder_cases import random_params

from hwmodels.networks import LinearSizes
from jaxspec.models.blocks import GatedDeltaNet, GroupedAttention
from jaxspec.models.config import DecoderConfig

#: Two value heads to a key head, no two sizes equal, attention in the last of three layers.
HYBRID = DecoderConfig(
    vocab_size=13,
    hidden_size=20,
    intermediate_size=14,
    num_layers=3,
    num_heads=4,
    num_kv_heads=2,
    head_dim=6,
    rope_theta=500.0,
    rotary_dim=2,
    qk_norm=True,
    norm="shifted_rms",
    attention_gate=True,
    linear=LinearSizes(key_heads=2, value_heads=4, key_dim=3, value_dim=5, conv_tokens=4),
    attention=(GatedDeltaNet(), GatedDeltaNet(), GroupedAttention()),
)
HYBRID_PARAMS = random_params(HYBRID)


def delta_net_by_hand(normed, weights, config, parents):
    """The layer of one text or tree, a state and a window of the convolution for each token, in float64.

    `parents`: of each token, -1 for the first one.
    """
    own, w = config.linear, {name: np.asarray(value, np.float64) for name, value in weights.items()}
    x = np.asarray(normed, np.float64)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    unit = lambda v: v / np.sqrt((v * v).sum(-1, keepdims=True) + 1e-6)
    output, states = np.zeros((len(x), w["out"].shape[0])), []
    for t in range(len(x)):
        path = [t]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        # Zeros stand before the beginning.
        window = np.zeros((own.conv_tokens, own.convolved))
        for place, token in enumerate(path[-own.conv_tokens :][::-1]):
            window[-1 - place] = w["in_qkv"] @ x[token]
        mixed = (window * w["conv"].T).sum(0)
        mixed = mixed * sigmoid(mixed)
        query, key, value = np.split(mixed, [own.keys, 2 * own.keys])
        query, key = (unit(part.reshape(own.key_heads, -1)) for part in (query, key))
        value = value.reshape(own.value_heads, -1)
        beta = sigmoid(w["in_b"] @ x[t])
        decay = np.exp(-np.exp(w["a_log"]) * np.log1p(np.exp(w["in_a"] @ x[t] + w["dt_bias"])))
        gate = (w["in_z"] @ x[t]).reshape(own.value_heads, -1)
        state = np.zeros((own.value_heads, own.key_dim, own.value_dim)) if len(path) == 1 else states[path[-2]].copy()
        heads = []
        for head in range(own.value_heads):
            k, q = (part[head // (own.value_heads // own.key_heads)] for part in (key, query))
            decayed = decay[head] * state[head]
            state[head] = decayed + np.outer(k, beta[head] * (value[head] - k @ decayed))
            read = (q / np.sqrt(own.key_dim)) @ state[head]
            normal = read / np.sqrt(np.mean(read**2) + config.norm_eps) * w["out_norm"]
            heads.append(normal * gate[head] * sigmoid(gate[head]))
        states.append(state)
        output[t] = w["out"] @ np.concatenate(heads)
    return output
