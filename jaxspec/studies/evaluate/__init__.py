"""`jaxspec evaluate`: measure and price one given draft."""
