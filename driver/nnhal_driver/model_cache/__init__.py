"""Compilation caching of the driver: a prepared model as a pair of files. Stores for these files are elsewhere."""
