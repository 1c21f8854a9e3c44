"""`jaxspec pack`, `unpack` and `inspect`: store a network compressed, without loss or as a scheme says."""
