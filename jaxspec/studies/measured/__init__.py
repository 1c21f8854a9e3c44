"""What every study that runs a network shares: set-up, measuring, entries of results."""
