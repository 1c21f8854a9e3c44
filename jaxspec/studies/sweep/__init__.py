"""`jaxspec sweep`: price every combination of a grid of numbers."""
