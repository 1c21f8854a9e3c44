"""The command line: `jaxspec tune | evaluate | predict | devices | models`."""

from jaxspec.cli.app import main

__all__ = ["main"]
