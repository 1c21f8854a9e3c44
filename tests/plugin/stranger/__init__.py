"""A package from outside: one file and one entry point for each thing that it adds."""
