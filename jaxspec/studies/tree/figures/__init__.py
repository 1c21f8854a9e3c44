"""Figures of tree speculation."""
