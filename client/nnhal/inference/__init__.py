"""Generated code of the Open Inference Protocol."""
