"""Training of the networks that do arithmetic, and judge it."""
