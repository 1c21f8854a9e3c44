"""Huff-LLM's compression tables from first principles: `python -m experiments.huffllm`.

No checkpoint is read: weights are drawn from a model with two fitted numbers (`weights_model`), coded by this project's own
Huffman codes, and measured (`compression`).

Differs from the paper in: weights are Gaussian rows, not a trained network's, so models of one family get one number;
matrices are smaller (6.3 million weights per family); 16 bits per weight stand for the uncompressed model, codebooks and
padding are left out (and given apart).
"""
