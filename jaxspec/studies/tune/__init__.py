"""`jaxspec tune`: find the best compressed draft of a network for each device."""
