"""Servicers: one module for each interface of the contract."""
