"""Shape rules of operations that act on each element."""
