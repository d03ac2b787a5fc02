"""Fleet: services on several hosts, which Ray starts, watches and counts. It is never in the path of an execution."""
