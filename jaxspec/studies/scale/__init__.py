"""`jaxspec scale`: several answers to one problem, one of them chosen; measured, priced, and compared with speculation."""
