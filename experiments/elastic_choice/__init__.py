"""Pool, bits, depth and width of an elastic draft, chosen at each batch by gradients and by trying all (ELMoE-3D, 7.3)."""
