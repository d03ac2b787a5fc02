"""The compilation cache: entries by client identity and token, with integrity checks and LRU eviction.

It needs nothing but the standard library.
"""
