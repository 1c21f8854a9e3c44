"""Huff-LLM's tables from first principles: `python -m experiments.reproduce huffllm`.

Compression: no checkpoint is read. Weights are drawn from a model with two fitted numbers (`weights_model`), coded by this
project's own Huffman codes, and measured (`compression`).

Savings of time and energy: the paper's two chips (`chips`) are priced by this project's hardware models with four fitted
numbers (`savings_model`), cell by cell against all printed tables (`savings`). Roofline, areas and CAMs are in `hardware`.
"""
