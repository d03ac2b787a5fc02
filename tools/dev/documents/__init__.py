"""Generators of documents: each module but `markdown` and `error_message` has a `generate`, which returns them."""
