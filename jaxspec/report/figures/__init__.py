"""What figures of several studies share: their style and the colours of operators."""
