"""What every test runs under."""

import jax
from hypothesis import settings

jax.config.update("jax_numpy_dtype_promotion", "strict")

# The same examples on every machine and in every run; compilation makes the first example slow, so no deadline.
settings.register_profile("jaxspec", deadline=None, derandomize=True)
settings.load_profile("jaxspec")
