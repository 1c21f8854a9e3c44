"""One step on a device: time by cause, traffic, energy, and what must be held."""
