"""`jaxspec compare`: drafts of every kind, and compression without a draft, on one target and one cost model."""
