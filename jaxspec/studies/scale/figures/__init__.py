"""Figures of test-time scaling."""
