"""The gradient tuner compared with searches that see hard scores alone, at equal cost."""
