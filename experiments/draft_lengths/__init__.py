"""Which draft lengths pay along an acceptance trace: fixed ones, rules that follow acceptance, and the best way."""
