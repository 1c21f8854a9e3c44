"""Options of XLA that results need, set before the first program is compiled.

jaxlib 0.10 hands sums to a library of kernels (YNNPACK). Some of these programs put out wrong numbers, silently and the same
ones each time: `(a[None] * b[:, None, :]).sum(-1) + c + d` of 4096 rows is wrong in 820 of them, of 1024 or 16384 rows in
none. Sums are therefore left to XLA's own code. See docs/decisions/0066-exact-products.md.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from importlib.metadata import PackageNotFoundError, version

__all__ = ["OWN_SUMS", "keep_own_sums"]

#: Takes sums from the library's kernels; everything else stays.
OWN_SUMS = "--xla_cpu_experimental_ynn_fusion_type=-LIBRARY_FUSION_TYPE_REDUCE"

#: Releases that are known to have the option, and to need it: XLA ends the process at an option that it does not know.
_RELEASES = "0.10."


def keep_own_sums(environment: MutableMapping[str, str] | None = None, release: str | None = None) -> None:
    """Add `OWN_SUMS` to the options that XLA reads when JAX compiles its first program.

    A user's own setting of this option stays. After the first program it is too late, and nothing tells: import this package
    before you compute.

    Args:
        environment: holds `XLA_FLAGS`; None: that of the process.
        release: of jaxlib; None: the one that is installed.
    """
    if environment is None:
        environment = os.environ
    if release is None:
        try:
            release = version("jaxlib")
        except PackageNotFoundError:
            return
    flags = environment.get("XLA_FLAGS", "")
    if release.startswith(_RELEASES) and OWN_SUMS.partition("=")[0] not in flags:
        environment["XLA_FLAGS"] = f"{flags} {OWN_SUMS}".strip()


# On import, so that it comes before any program of this package.
keep_own_sums()
