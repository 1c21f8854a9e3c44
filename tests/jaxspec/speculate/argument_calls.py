"""A call of each public function that decodes or measures, with right arguments unless told otherwise."""

import functools

import jax
import numpy as np

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models.config import DecoderConfig
from jaxspec.models.kv_cache import empty_cache
from jaxspec.speculate.acceptance import TargetText, all_starts, block_pass
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import NGramDraft, NGramParams, self_draft
from jaxspec.speculate.dynamic_tree import DynamicTree
from jaxspec.speculate.engine import decode, decode_autoregressively
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.measured_ranks import measure_ranks
from jaxspec.speculate.predicted_cycles import predict_cycles
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import Decoding
from jaxspec.trees import chain_paths, chain_tree, tree_from_paths
from jaxspec.tuning.calibration import calibrate

CONFIG = DecoderConfig(
    vocab_size=11, hidden_size=6, intermediate_size=8, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=6
)
WIDTH, BATCH, PROMPT = 4, 2, 5
PROMPTS = np.arange(BATCH * PROMPT, dtype=np.int32).reshape(BATCH, PROMPT) % 11
SEED = jax.random.key(3)
KNOBS = uniform_knobs(CASSANDRA1, CONFIG)
DRAFT, VOTES = NGramDraft(CONFIG.vocab_size), NGramParams()


#: Settings of decoding and of a request, out of what a call is given.
SETTINGS = ("greedy", "temperature", "top_k", "top_p", "num_tokens", "lengths", "stop")


def settings_of(given):
    return Decoding(
        **(dict(greedy=False, temperature=0.7) | {name: given[name] for name in SETTINGS[:4] if name in given})
    )


def request_of(given, prompts, ids, seed):
    return Request(
        prompts, np.asarray(ids), seed, **({"num_tokens": 3} | {k: given[k] for k in SETTINGS[4:] if k in given})
    )


def chain_call(target, *, prompts=PROMPTS, ids=(0, 1), length=2, seed=SEED, width=WIDTH, **settings):
    tree, (draft, params) = chain_tree(length, width), self_draft(CONFIG, target, KNOBS)
    static = dict(draft=draft, config=CONFIG, limits=chain_limits(width))
    request = request_of(settings, prompts, ids, seed)
    static |= {name: value for name, value in settings.items() if name not in SETTINGS}
    return decode(target, params, request, tree, settings_of(settings), **static)


def autoregressive_call(target, *, prompts=PROMPTS, ids=(0, 1), seed=SEED, **settings):
    draft, params = self_draft(CONFIG, target, KNOBS)
    static = dict(draft=draft, config=CONFIG, limits=chain_limits(WIDTH))
    request = request_of(settings, prompts, ids, seed)
    static |= {name: value for name, value in settings.items() if name not in SETTINGS}
    return decode_autoregressively(target, params, request, settings_of(settings), **static)


def tree_call(target, *, tree=None, prompts=PROMPTS, ids=(0, 1), seed=SEED, **settings):
    static = dict(draft=DRAFT, config=CONFIG)
    request = request_of(settings, prompts, ids, seed)
    static |= {name: value for name, value in settings.items() if name not in SETTINGS}
    tree = tree_from_paths(chain_paths(2)) if tree is None else tree
    return decode(target, VOTES, request, tree, settings_of(settings), **static)


dynamic_call = functools.partial(tree_call, tree=DynamicTree(2, depth=2, branches=2, frontier=1))


def proof_call(target, *, prompts=PROMPTS, length=2, **settings):
    draft = self_draft(CONFIG, target, KNOBS)
    return decode_chains(
        target, CONFIG, draft, Prompts(prompts, num_tokens=3, decoding=settings_of(settings), seed=1), length
    )


def ranks_call(target, *, prompts=PROMPTS, **static):
    static = dict(draft=DRAFT, config=CONFIG, prompt_tokens=2, depth=2) | static
    return measure_ranks(target, VOTES, prompts, **static)


def calibration_call(target, *, prompts=PROMPTS, first=1, config=CONFIG):
    return calibrate(target, config, prompts, scheme=CASSANDRA1, first=first)


def prediction_call(target, *, prompts=PROMPTS, length=2, num_tokens=2, **settings):
    asked = Prompts(PROMPTS[:, :2], num_tokens=num_tokens, decoding=settings_of(settings), seed=0)
    return predict_cycles(target, target, CONFIG, asked, prompts, knobs=KNOBS, draft_length=length)


def block_call(target, *, prompts=PROMPTS, hidden=None, offset=0, block=2, **settings):
    hidden = np.zeros((len(prompts), 3, 6), np.float32) if hidden is None else hidden
    text, cache = TargetText(prompts, hidden), empty_cache(CONFIG, BATCH, PROMPT - 1)
    options = dict(offset=offset, block=block, decoding=settings_of(settings))
    return block_pass(target, CONFIG, text, cache, target=target, **options)


def starts_call(target, *, prompts=PROMPTS, hidden=None, block=2, **settings):
    hidden = np.zeros((len(prompts), 3, 6), np.float32) if hidden is None else hidden
    text, cache = TargetText(prompts, hidden), empty_cache(CONFIG, BATCH, PROMPT - 1)
    return all_starts(target, CONFIG, text, cache, target=target, block=block, decoding=settings_of(settings))


def changed(row, place, token, dtype=np.int32):
    prompts = PROMPTS.astype(dtype)
    prompts[row, place] = token
    return prompts


READERS = {
    "decode": tree_call,
    "decode, a chain": chain_call,
    "decode, dynamic": dynamic_call,
    "decode_autoregressively": autoregressive_call,
    "decode_chains": proof_call,
    "predict_cycles": prediction_call,
    "measure_ranks": ranks_call,
    "calibrate": calibration_call,
    "block_pass": block_call,
    "all_starts": starts_call,
}
SAMPLERS = {name: call for name, call in READERS.items() if name not in ("measure_ranks", "calibrate")}
DECODERS = {name: call for name, call in READERS.items() if name.startswith("decode") and name != "decode_chains"}
