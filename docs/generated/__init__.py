"""Pages that are written while the site is built, from what is committed elsewhere; `docs/generated_hook.py` adds them."""
