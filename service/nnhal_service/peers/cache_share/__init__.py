"""The cache share: a store behind the caches of several services, so that each model is compiled once."""
