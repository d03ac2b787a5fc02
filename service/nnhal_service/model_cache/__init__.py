"""Cache files of clients, and the cache arguments of preparations."""
