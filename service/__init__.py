"""The gRPC face of the driver: translation, identity, sessions, limits; a module for each interface of the contract."""
