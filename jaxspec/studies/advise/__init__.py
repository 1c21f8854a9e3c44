"""`jaxspec advise`: whether to speculate, how, what it gains and how sure that is."""
