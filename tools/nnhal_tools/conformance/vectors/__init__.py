"""Test vectors: reading, building and preparing them, and comparing outputs with them."""
