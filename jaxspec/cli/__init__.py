"""The command line: studies from their registry, and `jaxspec unpack | inspect | devices | models`."""

from jaxspec.cli.process import main

__all__ = ["main"]
