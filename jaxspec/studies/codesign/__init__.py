"""`jaxspec codesign`: draft and hardware together, by gradient, under budgets."""
