"""`jaxspec calibrate`: the machine at hand, or times of one's own, as a device file."""
