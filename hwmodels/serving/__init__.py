"""Requests that arrive at an engine: how long they wait, and how many tokens leave it, with and without speculation.

`requests` draws them, `step_table` prices every step that the engine may take by the one pricing path, `engine` says what an
engine is, `simulation` runs it, `latencies` says what its users see.
"""
