"""What stands on the contract: the command line, the demo, measurements, and the tools that build the project."""
