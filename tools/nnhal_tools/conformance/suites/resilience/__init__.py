"""Suite `resilience` (RESIL): ends of processes of the service, and its return. Needs --kill-cmd.

Each check kills a process while several sessions are at work. The models are new each time, because a service may
refuse one that was in progress in several crashes.
"""
