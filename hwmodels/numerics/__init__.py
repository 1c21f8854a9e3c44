"""Numbers: pytree leaves, units, smooth maxima, folds of products onto arrays."""
