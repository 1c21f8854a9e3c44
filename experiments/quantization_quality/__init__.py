"""What quantized weights and float16 attention cost in accuracy, on text and on arithmetic, with intervals."""
