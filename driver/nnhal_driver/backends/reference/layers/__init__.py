"""Kernels of neural-network layers and their post-processing."""
