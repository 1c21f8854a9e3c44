"""Draft-verify cycles: plans, their time, tokens and speedup, and when not to speculate."""
