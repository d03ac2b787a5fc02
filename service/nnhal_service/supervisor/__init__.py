"""Supervisor of a service: one process that starts, watches and replaces the workers, and serves nothing itself.

It loads no backend, no plug-in, no model and no gRPC, so none of them can take it down.
"""
