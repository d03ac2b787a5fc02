"""State that services share: members of a fleet, and the cache of compiled models."""
