"""Settings of config.json that may cut what a token sees."""

#: Settings beside those of the sizes, and whether transformers' cached decoding then sees the whole text, as its forward pass
#: does (compared live in test_hf_oracle.py).
WINDOWS = {
    "none": ("llama", {"sliding_window": None, "attention_chunk_size": None}, True),
    "a window": ("llama", {"sliding_window": 8}, False),
    "a window that is said to be off": ("llama", {"sliding_window": 8, "use_sliding_window": False}, False),
    "a window of nothing": ("llama", {"sliding_window": 0}, False),
    "chunks": ("llama", {"attention_chunk_size": 8}, False),
    "a window beyond all positions": ("llama", {"sliding_window": 64, "max_position_embeddings": 64}, True),
    "a window of all positions but one": ("llama", {"sliding_window": 63, "max_position_embeddings": 64}, False),
    "granite, a window": ("granite", {"sliding_window": 8}, False),
    "olmo2, chunks": ("olmo2", {"attention_chunk_size": 8}, False),
    "mistral, chunks": ("mistral", {"attention_chunk_size": 8, "sliding_window": None}, False),
    "layer types": ("llama", {"sliding_window": 8, "layer_types": ["full_attention"] * 3}, True),
    "qwen3, off": ("qwen3", {"sliding_window": 8}, True),
    "qwen3, chunks": ("qwen3", {"attention_chunk_size": 8}, True),
    "qwen3, layer types": ("qwen3", {"sliding_window": 8, "layer_types": ["full_attention"] * 3}, True),
}
