"""Security of a client's connections: TLS, certificates and tokens, and the reasons why a service refuses them."""
