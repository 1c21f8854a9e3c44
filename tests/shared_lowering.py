"""What programs share while they are lowered: MLIR's context, and the code of single operations in it.

JAX makes a context of MLIR for each program that it compiles, registers all of MLIR's operations in it, and then writes the
code of each operation that the program has: a third of the time of a small program, and much memory. Programs that are
lowered one after the other share both here. A context keeps its programs' constants, so it is dropped now and then. A version
of JAX that does this elsewhere does it as before.
"""

import functools
import sys

#: Dialects of code that says nothing of the program that it stands in,
_DIALECTS = ("stablehlo.", "chlo.", "func.return")
#: but for that of functions, devices, channels and callbacks.
_OF_A_PROGRAM = (
    *("all_", "collective", "composite", "create_token", "cross-replica", "custom_call", "infeed", "outfeed"),
    *("partition_id", "recv", "reduce_scatter", "replica_id", "send"),
)


class Codes(dict):
    """Code of a program's operations by what they do: its own, and what all programs of a context have."""

    def __init__(self, shared):
        super().__init__()
        self.shared = shared

    def get(self, key, default=None):
        found = self.shared.get(key)
        return super().get(key, default) if found is None else found

    def __setitem__(self, key, code):
        if says_nothing_of_a_program(code):
            self.shared[key] = code
        else:
            super().__setitem__(key, code)


def says_nothing_of_a_program(code) -> bool:
    """Whether other programs may have it: it stands in none, and names nothing of one."""
    if not code.inline or code.const_args:
        return False
    from jax._src.lib.mlir import ir

    operations = []

    def look(operation):
        operations.append(operation.name)
        return ir.WalkResult.ADVANCE

    code.func.operation.walk(look)
    return all(
        name == "func.func" or (name.startswith(_DIALECTS) and not name.partition(".")[2].startswith(_OF_A_PROGRAM))
        for name in operations
    )


_found = sys.modules.get("jax._src.interpreters.mlir")
_context = functools.cache(getattr(_found, "make_ir_context", lambda: None))


#: Context and settings -> what its programs share.
SHARED = {}


def drop():
    """Begin with a new context."""
    _context.cache_clear()
    SHARED.clear()


def share():
    """From now on."""
    if not hasattr(_found, "make_ir_context"):
        return
    _found.make_ir_context = _context
    program, code = getattr(_found, "ModuleContext", None), getattr(_found, "LoweringCacheValue", None)
    parts = ("lowering_cache", "lowering_parameters", "traceback_caches", "aval_to_ir_types_cache")
    if not all(hasattr(program, part) for part in parts) or not {"inline", "const_args"} <= code.__annotations__.keys():
        return
    from jax._src import config

    begun = program.__init__

    def begin(self, *, lowering_cache=None, **more):
        begun(self, lowering_cache=lowering_cache, **more)
        if lowering_cache is None:
            shared = SHARED.setdefault((self.context, self.lowering_parameters, config.trace_context()), {})
            self.lowering_cache = Codes(shared.setdefault("codes", {}))
            self.traceback_caches = shared.setdefault("places", self.traceback_caches)
            self.aval_to_ir_types_cache = shared.setdefault("types", self.aval_to_ir_types_cache)

    program.__init__ = begin
