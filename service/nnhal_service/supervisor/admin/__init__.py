"""The admin process: its addresses, its start by the supervisor, and its work."""
