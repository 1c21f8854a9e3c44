"""Co-design by gradient compared with random search and a Bayesian optimiser, on the three example problems."""
