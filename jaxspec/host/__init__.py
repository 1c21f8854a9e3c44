"""The machine at hand: `jaxspec calibrate` measures it, or takes times of one's own; a stopwatch for decoding on it."""
