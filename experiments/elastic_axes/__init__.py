"""The two axes of an elastic draft, measured on a network: pool of experts and bit width (ELMoE-3D, Fig. 5b, 16b and 17)."""
