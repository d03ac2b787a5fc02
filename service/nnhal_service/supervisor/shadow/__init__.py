"""The process of the shadow: its start by the supervisor, and its main function."""
