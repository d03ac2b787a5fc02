"""Comparison with other model servers, Triton and MLServer, from their packages and with LiteRT as engine."""
