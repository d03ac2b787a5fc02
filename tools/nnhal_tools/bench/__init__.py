"""Load tests of services: clients in processes of their own, latencies, throughput and processor time."""
