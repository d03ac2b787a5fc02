"""The driver's part of compilation caching: what a prepared model is in a pair of files. It knows no store."""
