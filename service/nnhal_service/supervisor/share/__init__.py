"""The process that reads and writes the cache share: its start by the supervisor, and its main function."""
