"""The command line: `jaxspec tune | evaluate | predict | pack | unpack | inspect | devices | models`."""

from jaxspec.cli.process import main

__all__ = ["main"]
