"""Commands for fleets of services on several hosts."""
