"""Commands for the services of this machine: start one, reload it, and look after its files."""
