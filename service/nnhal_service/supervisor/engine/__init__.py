"""Engines of workers, in processes of their own."""
