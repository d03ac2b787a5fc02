"""Parts of the server of a worker: its devices and backends, its addresses, and what its supervisor provides."""
