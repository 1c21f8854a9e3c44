"""The command line: `jaxspec tune | evaluate | predict | pack | unpack | inspect | devices | models`."""

from jaxspec.cli.app import main

__all__ = ["main"]
