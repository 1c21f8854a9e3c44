"""Speculative decoding measured in vLLM on H100s, and a simulator of its upper bound: the sixth paper."""
