"""Huff-LLM's tables from first principles: `python -m experiments.papers.huffllm`.

Compression: no checkpoint is read. Weights are drawn from a model with two fitted numbers (`weights_model`), coded by this
project's own Huffman codes, and measured (`compression`).

Savings of time and energy: the paper's two chips (`chips`) are priced by this project's hardware models with four fitted
numbers (`savings_model`), cell by cell against all printed tables (`savings`). Roofline, areas and CAMs are in `hardware`.

Differs from the paper in: weights are Gaussian rows, not a trained network's, so models of one family get one number;
matrices are smaller (6.3 million weights per family); 16 bits per weight stand for the uncompressed model, codebooks and
padding are left out (and given apart). Time and energy are those of one prefill of a layer's matrices: embedding, head and
attention between tokens are left out. The paper's simulators are not at hand; how they combine times, their unit energies,
the vector array's global buffer and how it is fed are not printed, and chosen here.
"""
