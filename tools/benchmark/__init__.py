"""Measurements that decide how the project is built, and show what it costs; each module is a program of its own."""
