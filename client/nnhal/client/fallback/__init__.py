"""Models that run partly on the client's machine: their division into parts, placement and values. Makes no calls."""
