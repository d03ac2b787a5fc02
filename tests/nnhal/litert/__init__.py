"""Tests of the drop-in interpreter: the same programs with LiteRT and with nnhal."""
