"""Members of a fleet, as the workers of a service know them, and the choice of one for a new session."""
