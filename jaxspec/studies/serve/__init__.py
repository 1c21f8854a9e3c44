"""`jaxspec serve`: requests that arrive at an engine, with and without speculation."""
