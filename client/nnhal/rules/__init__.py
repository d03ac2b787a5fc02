"""Validation rules for parts of a model, shared by the model builder and the device.

The rules that need a whole model, a request or the device are in `nnhal_driver.validation`.
"""
