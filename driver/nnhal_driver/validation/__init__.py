"""Validation of models, requests and arguments by the rules of model-validation.md, each under its id.

The rules that a model builder needs too are in `nnhal.rules`.
"""
