"""Collects the code blocks of the README and of the guide as tests; what is done with each is in `docs/code_blocks.py`."""

import contextlib
import os
import tempfile

import code_blocks
import page_python
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser


def _python(example):
    import jax

    # Readers do not run under the strict promotion of the tests.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        page_python.run_python(
            example.parsed,
            example.namespace,
            path=example.path,
            first_line=example.line + example.parsed.line_offset + 1,
        )


def _enter(namespace):
    """All blocks of a page share an empty working directory."""
    code_blocks.ensure_importable()
    stack = namespace["_stack"] = contextlib.ExitStack()
    stack.callback(os.chdir, os.getcwd())
    os.chdir(stack.enter_context(tempfile.TemporaryDirectory()))


def _leave(namespace):
    namespace["_stack"].close()


pytest_collect_file = Sybil(
    parsers=[
        CodeBlockParser("python", _python),
        *(
            CodeBlockParser(language, lambda example, check=check: check(example.parsed) and None)
            for language, check in code_blocks.CHECKS.items()
        ),
    ],
    patterns=["*.md", "docs/pages/*.md"],
    setup=_enter,
    teardown=_leave,
).pytest()
