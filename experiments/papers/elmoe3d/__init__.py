"""ELMoE-3D, reproduced: `paper` declares its tables."""
