"""Programs in C and C++ that include the header: its facts, and all ways of computing under sanitizers."""
