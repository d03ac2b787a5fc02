"""Everything that uses private parts of grpcio. It is checked when it is imported, and nothing depends on it."""
