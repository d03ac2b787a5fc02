"""Generators of documents and C sources. Each module but `markdown` and `error_message` has a `generate`."""
