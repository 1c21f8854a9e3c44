"""The papers' tables, reproduced: a package each."""
