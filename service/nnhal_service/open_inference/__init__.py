"""Open Inference Protocol (KServe v2): requests of its clients for the driver, whatever the transport."""
