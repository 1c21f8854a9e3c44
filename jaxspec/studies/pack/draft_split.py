"""Which values of each matrix the draft inside a container keeps: by Wanda where the network can be run, else by magnitude."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt

from jaxspec.compress.knobs import Knobs, check_range, read_norms
from jaxspec.compress.schemes import DEFAULT_SCHEME, Scheme
from jaxspec.compress.selection import keep_largest_of_rows, log_of, num_pruned, ordered_pattern, wanda_score
from jaxspec.compress.weights import HEAD, HEAD_KNOBS
from jaxspec.errors import InputError
from jaxspec.formats.bit_slices import WEIGHT_BITS
from jaxspec.formats.container import Selection, TensorForm
from jaxspec.host.measuring import device_memory_bytes
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.config import INPUT_OF
from jaxspec.models.layerwise import StoredNetwork, input_squares
from jaxspec.models.stored_parameters import head_tensor, layer_parameters
from jaxspec.report.formatting import bytes_in_words
from jaxspec.settings.knobs import SLICE_BITS, StoredDtype
from jaxspec.text import load_text

#: Tensors that stay whole unless they are matrices of a known network: embeddings and heads, and scales of packed matrices, by
#: the names of common families.
WHOLE_TENSORS = ("*embed*", "*lm_head*", "*wte*", "*wpe*", "*head.weight", "*router*", "*_scale*")

#: Types of values that can be divided, by safetensors' names.
_VALUE_DTYPES: dict[str, StoredDtype] = {"BF16": "bfloat16", "F16": "float16"}

#: Knobs that say which share of a matrix's values is pruned, how many bits of the others are cut, and how many bits of an
#: integer are not.
_PRUNE, _CUT, _UPPER = "weight_prune", "weight_cut_bits", SLICE_BITS.name

#: Memory that running a layer takes, in layers as stored: as read, widened to float32, and what it works with.
_COPIES_OF_A_LAYER = 4


@dataclasses.dataclass(frozen=True)
class MatrixSplit:
    """The same rule for every matrix, with knobs and activation norms of its own where they are known.

    Attributes:
        weight_prune, weight_cut_bits: of matrices that `knobs` does not name; see `left_out`.
        knobs: tensor name -> pruning ratio and cut bits.
        norms: tensor name -> L2 norm of each input channel; without, the score of a value is its magnitude.
        only: tensor names that are divided; None: all two-dimensional ones of 16-bit floating point but `WHOLE_TENSORS`.
        scheme: whose target's values are ranked, as in a draft that is tuned.
        head: name of the tensor that holds the LM head; None: it is not divided.
    """

    weight_prune: float
    weight_cut_bits: int
    knobs: dict[str, tuple[float, int]]
    norms: dict[str, np.ndarray]
    only: frozenset[str] | None = None
    scheme: Scheme = DEFAULT_SCHEME
    head: str | None = None

    def _scheme_of(self, form: TensorForm) -> Scheme:
        return self.scheme.of_kind(HEAD) if form.name == self.head else self.scheme

    def selection(self, form: TensorForm) -> Selection | None:
        """How much of a tensor the draft reads; None for tensors that stay whole."""
        if len(form.shape) != 2 or form.dtype not in _VALUE_DTYPES:
            return None
        if self.only is not None and form.name not in self.only:
            return None
        if self.only is None and any(fnmatchcase(form.name, pattern) for pattern in WHOLE_TENSORS):
            return None
        prune, cut_bits = self.knobs.get(form.name, (self.weight_prune, self.weight_cut_bits))
        kept, own = form.columns - int(num_pruned(prune, form.columns)), self._scheme_of(form)
        return Selection(kept, cut_bits, codec=None if own is self.scheme else own.facts.codec)

    def check(self, forms: Iterable[TensorForm]) -> None:
        """Check what would be cut of each tensor, before any is read.

        Raises:
            InputError: more mantissa bits than its type has.
        """
        codec = self.scheme.codec
        for form in forms:
            selection = self.selection(form)
            if selection is None or codec is None or form.dtype not in codec.dtypes:
                continue
            own = self._scheme_of(form).of_dtype(_VALUE_DTYPES[form.dtype])
            spec = next((spec for spec in own.knob_specs if spec.name == _CUT), None)
            if spec is None:  # whose range is the same for all types
                continue
            if form.name == self.head:
                spec = dataclasses.replace(spec, name=HEAD_KNOBS[_CUT])
            try:
                check_range(spec, selection.cut_bits)
            except InputError as error:
                raise InputError(f"tensor {form.name!r} is stored in {form.dtype}: {error}") from None

    def keep(self, form: TensorForm, rows: np.ndarray, kept_per_row: int) -> np.ndarray:
        """The values of largest score in each row; ties from the right."""
        norms = self.norms.get(form.name, np.ones(form.columns, np.float32))
        values = jnp.asarray(rows.view(jnp.dtype(_VALUE_DTYPES[form.dtype])))
        ranking = wanda_ranking(values, jnp.asarray(norms), scheme=self._scheme_of(form))
        return keep_largest_of_rows(np.asarray(ranking), kept_per_row)


def matrix_names(model: StoredNetwork) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Tensor name -> layer and kinds, of every tensor that holds matrices of a network: one, or several of one input.

    Each expert's matrix is a tensor; where one tensor holds all of them, it is none of these and stays whole.
    """
    stored = layer_parameters(model.config, model.row)
    matrices: dict[str, tuple[int, tuple[str, ...]]] = {}
    for kind in model.config.matrix_kinds:
        parameter = stored["layers", kind]
        if len(parameter.tensor_shape) != 2:
            continue
        for layer in model.config.layer_parameters[kind].layers():
            for name in parameter.in_layer(layer).names():
                matrices[name] = (layer, (*matrices.get(name, (layer, ()))[1], kind))
    return matrices


def head_name(model: StoredNetwork) -> str:
    """Name of the tensor that holds the LM head: the embedding's where they are tied."""
    return head_tensor(model.config, model.row)


def left_out(values: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Pruning ratio and whole bits that are cut of a value, by the knobs of matrices; of 8-bit integers all but the upper bits.

    Args:
        values: knob -> numbers, with those of the scheme.
    """
    if _UPPER in values:
        upper = np.asarray(values[_UPPER])
        return np.zeros_like(upper), WEIGHT_BITS - np.round(upper).astype(int)
    return np.asarray(values[_PRUNE]), np.round(np.asarray(values[_CUT])).astype(int)


def named_knobs(model: StoredNetwork, knobs: Knobs) -> dict[str, tuple[float, int]]:
    """Pruning ratio and whole cut bits of each matrix by its tensor's name, of the head too where the scheme divides it.

    Raises:
        InputError: different ones for matrices that one tensor holds.
    """
    prune, cut = left_out(knobs.values)
    place = {kind: index for index, kind in enumerate(model.config.matrix_kinds)}
    named: dict[str, tuple[float, int]] = {}
    for name, (layer, kinds) in matrix_names(model).items():
        values = {(float(prune[layer, place[kind]]), int(cut[layer, place[kind]])) for kind in kinds}
        if len(values) > 1:
            raise InputError(
                f"knobs of {' and '.join(kinds)} in layer {layer} differ, but tensor {name!r} holds them all and is divided by "
                "one rule: pack without --knobs, or write the draft with jaxspec export"
            )
        named[name] = values.pop()
    if knobs.scheme.facts.head:
        prune, cut = (float(knobs.values[name]) for name in HEAD_KNOBS.values())
        named[head_name(model)] = prune, round(cut)
    return named


def named_norms(model: StoredNetwork, result: str, *, head: bool = False) -> dict[str, np.ndarray]:
    """Norms that the run of a result.json ranked with, by the tensor's name; empty where it left none.

    Args:
        head: the head's too.
    Raises:
        InputError: see `read_norms`.
    """
    parameters = model.config.layer_parameters
    shapes: dict[str, tuple[int, ...]] = {
        kind: (parameters[kind].num_layers, parameters[kind].shape[-1]) for kind in model.config.matrix_kinds
    }
    norms = read_norms(result, shapes | ({HEAD: (model.config.hidden_size,)} if head else {}))
    if norms is None:
        return {}
    place = lambda kind, layer: parameters[kind].before(layer)
    named = {name: norms[kinds[0]][place(kinds[0], layer)] for name, (layer, kinds) in matrix_names(model).items()}
    return named | ({head_name(model): norms[HEAD]} if head else {})


def measured_norms(
    model: StoredNetwork, text: str, *, num_windows: int, window_tokens: int, seed: int, head: bool = False
) -> dict[str, np.ndarray]:
    """Norm of each matrix's input channels over windows of calibration text, by the tensor's name.

    Args:
        head: of the head's too.
    Raises:
        InputError: the text cannot be used, or a layer of the network is larger than the memory there is.
    """
    learned = model.config.learned_positions
    if learned is not None and window_tokens > learned.positions:
        raise InputError(
            f"window_tokens is {window_tokens}; this network has {learned.positions} positions: give so many at most, or "
            "--importance magnitude"
        )
    needed, memory = _COPIES_OF_A_LAYER * model.layer_bytes, device_memory_bytes()
    if needed > memory:
        raise InputError(
            f"running one layer of this network for its activations takes about {bytes_in_words(needed)}, there are "
            f"{bytes_in_words(memory)}: pack with --importance magnitude"
        )
    # Only the first half is used here.
    chat = load_chat_template(model.directory)
    split = load_text(text, model.tokenizer, needed=(window_tokens, 0), chat=chat)
    squares = input_squares(model, split.calibration_windows(num_windows, window_tokens, seed), head=head)
    place = lambda kind, layer: model.config.layer_parameters[kind].before(layer)
    named = {
        name: squares[INPUT_OF[kinds[0]]][place(kinds[0], layer)]
        for name, (layer, kinds) in matrix_names(model).items()
    }
    named |= {head_name(model): squares[HEAD][0]} if head else {}
    return {name: np.sqrt(squares).astype(np.float32) for name, squares in named.items()}


@partial(jax.jit, static_argnames="scheme")
def wanda_ranking(
    values: Float[Array, "row column"], channel_norm: Float[Array, " column"], *, scheme: Scheme
) -> UInt[Array, "row column"]:
    """Unsigned integers in the order of the scores that a scheme's drafts are ranked by."""
    return ordered_pattern(log_of(wanda_score(scheme.matrix.target(values), channel_norm)))
