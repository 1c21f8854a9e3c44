"""`jaxspec tree`: find the best draft tree for each device."""
