"""Sessions that are at work when a process of the service ends, and what becomes of them."""
