"""Shape of a dense decoder network, as the network itself needs it."""

from __future__ import annotations

import dataclasses

#: The seven matrices of a layer that a draft may compress, in the order in which a layer uses them.
MATRIX_KINDS = ("q", "k", "v", "o", "gate", "up", "down")

#: Which recorded input feeds each matrix (see `forward(keep_activations=True)`).
INPUT_OF = {"q": "qkv", "k": "qkv", "v": "qkv", "o": "o", "gate": "gate_up", "up": "gate_up", "down": "down"}


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Frequency scaling of rotary embeddings, Llama 3.1 style.

    Source: `rope_type = "llama3"` of the Llama 3.1 release (config.json keys of the same names).
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Static shape and constants of a dense decoder (RMSNorm, RoPE, grouped queries, SwiGLU).

    Raises:
        ValueError: a size is not positive, or the query heads are no multiple of the KV heads.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    qk_norm: bool = False
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads; "
                "the first must be a multiple of the second"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary embeddings need an even one")

    def matrix_shape(self, kind: str) -> tuple[int, int]:
        """(output rows, input columns) of one matrix kind in one layer."""
        query, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return {
            "q": (query, self.hidden_size),
            "k": (key, self.hidden_size),
            "v": (key, self.hidden_size),
            "o": (self.hidden_size, query),
            "gate": (self.intermediate_size, self.hidden_size),
            "up": (self.intermediate_size, self.hidden_size),
            "down": (self.hidden_size, self.intermediate_size),
        }[kind]

    def num_parameters(self) -> int:
        """Parameters of the whole network; a tied head counts once."""
        matrices = sum(rows * columns for rows, columns in map(self.matrix_shape, MATRIX_KINDS))
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_embeddings else 2)
        return self.num_layers * (matrices + norms) + self.hidden_size + embeddings
