"""Fleets on a cluster of Ray: the actors, local clusters for trying things out, and the connection of operators."""
