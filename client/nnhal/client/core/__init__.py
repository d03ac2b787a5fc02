"""Code that both clients share: values, messages, errors and handles. Nothing here waits for the service."""
