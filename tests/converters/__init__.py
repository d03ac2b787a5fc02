"""Converters of other formats to .tflite files, each in an environment of its own."""
