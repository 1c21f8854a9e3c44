"""Speculation on a pretrained network and natural text, by category."""
