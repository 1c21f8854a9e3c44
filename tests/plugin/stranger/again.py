"""A draft: every token comes again."""

import dataclasses

import jax
import jax.numpy as jnp

from hwmodels import DraftCost
from jaxspec.speculate.drafts import ReadyDraft


@dataclasses.dataclass(frozen=True)
class Again:
    """A `Draft` without numbers or memory."""

    vocab_size: int
    name: str = dataclasses.field(default="again", compare=False)

    def num_parameters(self, params):
        """None."""
        return params.size

    def cost(self, target, priced, called):
        """Nothing."""
        return DraftCost(passes=0.0, statement=f"nothing, however large {called} is")

    def empty(self, params, batch, slots, numbers):
        """No memory."""
        return ()

    def commit(self, params, memory, committed):
        """Nothing is remembered."""
        return memory

    def open(self, params, memory, root):
        """The root again."""
        return jax.nn.one_hot(root.token, self.vocab_size), memory

    def extend(self, params, memory, root, level):
        """Each token again."""
        return jax.nn.one_hot(level.tokens, self.vocab_size), memory


def again(name, target):
    """The draft, from its name and a loaded target."""
    return ReadyDraft(Again(target.config.vocab_size, name), jnp.zeros(0))
