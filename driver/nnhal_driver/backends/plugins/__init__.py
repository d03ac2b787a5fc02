"""Dynamic backends: discovery, loading in a child process, and tools for backend authors."""
