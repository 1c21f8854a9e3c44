"""Figures of `jaxspec compare`."""
