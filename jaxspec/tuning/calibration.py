"""Everything about a network and its calibration text that tuning needs, computed once."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxspec.checks import check_count, check_network, check_tokens
from jaxspec.compress.kv import PreparedKV, join_kv, prepare_kv, stored_kv
from jaxspec.compress.schemes import Scheme
from jaxspec.compress.weights import HEAD, prepare, sum_of_squares
from jaxspec.formats.patterns import target_format
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.matrix import is_matrix, matrix_of
from jaxspec.models.mesh import filled_rows, mesh_of, split_inside, split_rows
from jaxspec.models.rope import text_lengths
from jaxspec.models.special_tokens import head_input
from jaxspec.models.stored import as_stored
from jaxspec.models.streamed import is_in_host, is_streamed
from jaxspec.speculate.acceptance import TargetText

#: Bytes of activations that a pass over calibration text may hold for one layer; more windows take several passes.
_PASS_BYTES = 1 << 28


@struct.dataclass
class Calibration:
    """A target with what a scheme prepared of its weights, and text with what the target says of it and its prepared KV.

    Attributes:
        params: the target's, as stored; the KV of a streamed target is streamed too.
        prepared: of the weights, the scheme's own (see `Scheme.prepare`); leaves lead with a layer axis but
            for those of the head.
        text: windows of calibration text.
        kv: the target's KV of that text.
        config: static.
        choices: experts that the target's routers choose at each token of the text; None of a dense network.
        sharing: static; consecutive windows whose drafts share a pool of experts.
        filling: static; windows behind the others that fill a place on the mesh alone: no number is about them.
        mesh: of the devices that the parameters lie on; None: one device.
    """

    params: Params
    prepared: Any
    text: TargetText
    kv: PreparedKV
    config: DecoderConfig = struct.field(pytree_node=False)
    choices: Int[Array, "batch token layer chosen"] | None = None
    sharing: int = struct.field(pytree_node=False, default=1)
    filling: int = struct.field(pytree_node=False, default=0)
    mesh: Mesh | None = struct.field(pytree_node=False, default=None)

    @property
    def num_windows(self) -> int:
        """Windows of calibration text."""
        return self.text.tokens.shape[0] - self.filling

    def window(self, index: Int[Array, " batch"]) -> TargetText:
        """The text of some windows, by traced or static numbers."""
        return split_inside(self.mesh, jax.tree.map(partial(jnp.take, indices=index, axis=0), self.text))


def target_params(stored: Params, *, exact: Collection[tuple[str, ...]] = ()) -> Params:
    """Stored parameters in 16 bits: the target that everything is compared with. What is stored so, or in codes, is not copied,
    wider values are rounded to bfloat16.

    Args:
        exact: places of parameters that stay as they are (see `LoadedModel.exact`).
    """

    def rounded(path: tuple[Any, ...], leaf: Any) -> Any:
        if tuple(getattr(step, "key", None) for step in path) in exact:
            return leaf
        if matrix_of(leaf).in_codes:
            return leaf
        wanted = target_format(leaf.dtype).value_dtype
        return leaf.astype(wanted) if is_in_host(leaf) else jnp.asarray(leaf, wanted)

    return as_stored(jax.tree_util.tree_map_with_path(rounded, stored, is_leaf=is_matrix))


def windows_per_pass(config: DecoderConfig, tokens: int) -> int:
    """Windows of so many tokens that one pass over a network may take at once, so that activations stay small."""
    width = max(config.intermediate_size, config.hidden_size, config.scored_heads * tokens)
    return max(1, _PASS_BYTES // (4 * width * tokens))


def calibrate(
    params: Params,
    config: DecoderConfig,
    tokens: Int[Array, "batch token_plus_1"],
    *,
    scheme: Scheme,
    first: int,
    sharing: int = 1,
) -> Calibration:
    """Run the target over the calibration text once.

    What the data axis of a mesh does not divide would be whole on each device: there the last window stands behind the others
    again, as often as it takes, and counts once.

    Args:
        params: from `target_params`; the result holds these very arrays, not copies.
        tokens: windows of text; activation norms are taken over all of their tokens.
        scheme: static; whose knobs will be tried.
        first: static; position of the first root: what comes before is context only.
        sharing: consecutive windows whose drafts share a pool of experts.
    Raises:
        ValueError: windows of less than two tokens, a token outside the vocabulary, or a first root beyond the text.
    """
    windows, length = check_tokens("tokens", tokens, vocab_size=config.vocab_size, least=2)
    check_count("first", first, least=0, most=length - 2)
    check_network(params, vocab_size=config.vocab_size, hidden_size=config.hidden_size)
    mesh, streams = mesh_of(params), is_streamed(params)
    scheme = scheme.of_dtype(config.stored_dtype)
    # What one device may take at once, for each of those that texts are split over.
    size = windows_per_pass(config, length) * (1 if mesh is None else mesh.shape["data"])
    filled, counted = filled_rows(mesh, jnp.asarray(tokens))

    def heard(start: int) -> tuple[dict[str, Array], Array, PreparedKV, Array | None]:
        of_part = lambda rows: split_rows(params, rows[start : start + size])[0]
        counts = None if counted is None else of_part(counted)
        options = {"scheme": scheme, "first": first, "counted": counts}
        squares, hidden, kv, choices = calibration_pass(params, config, of_part(filled), **options)
        return squares, hidden, jax.device_get(kv) if streams else kv, choices

    squares, hidden, kv, choices = zip(*(heard(start) for start in range(0, len(filled), size)), strict=True)
    norms = jax.tree.map(lambda *sums: jnp.sqrt(sum(sums[1:], sums[0])), *squares)
    return Calibration(
        params=params,
        prepared=prepare_once(scheme, params, norms),
        text=TargetText(tokens=filled, hidden=jnp.concatenate(hidden)),
        kv=join_kv(kv, stream=streams),
        config=config,
        choices=jax.tree.map(lambda *parts: jnp.concatenate(parts), *choices),
        sharing=sharing,
        filling=len(filled) - windows,
        mesh=mesh,
    )


#: `prepare` as a program.
prepare_once = partial(jax.jit, static_argnames="scheme")(prepare)


@partial(jax.jit, static_argnames=("config", "scheme", "first"))
def calibration_pass(
    params: Params,
    config: DecoderConfig,
    tokens: Int[Array, "batch token_plus_1"],
    *,
    scheme: Scheme,
    first: int,
    counted: Float[Array, " batch"] | None = None,
) -> tuple[
    dict[str, Array], Float[Array, "batch query hidden"], PreparedKV, Int[Array, "batch token layer chosen"] | None
]:
    """Sums of squares of each layer's inputs, hidden states from the first root on, prepared KV, and choices of experts.

    Of the head's input too, where the scheme compresses the head.

    Args:
        counted: whether the sums are about a window, 0 or 1; None: about all.
        others: as for `calibrate`.
    """
    text = tokens[:, :-1]
    place = jnp.broadcast_to(jnp.arange(text.shape[1]), text.shape)
    result = forward_text(
        params,
        config,
        text,
        kv_codec=stored_kv(config),
        keep_activations=partial(sum_of_squares, counted=counted),
        logits_from=text.shape[1],
        # As decoding processes a prompt that ends with the first root.
        lengths=text_lengths(place, jnp.full(1, first + 1)),
    )
    assert result.activations is not None
    choices = None if result.extras is None else result.extras.original
    squares = dict(result.activations)
    if scheme.facts.head:
        squares[HEAD] = sum_of_squares(head_input(result.hidden, params, config), counted)
    return squares, result.hidden[:, first:], prepare_kv(scheme, result.cache), choices
