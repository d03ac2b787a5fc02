"""Simulation of large fleets, which runs the product's code for the placement of clients and the number of hosts."""
