"""Prepared models and everything that runs them: plans, requests, buffers, bursts and fences."""
