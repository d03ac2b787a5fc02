"""The faults, one module for each part of a device that can be wrong."""
