"""Requests that arrive at an engine: how long they wait, and how many tokens leave it, with and without speculation.

`step_table` says what an engine is and prices every step that it may take by the one pricing path, `simulation` draws requests,
runs the engine, and says what its users see.
"""
