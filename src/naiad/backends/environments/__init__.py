"""Environments of models that run in processes: which Python starts a process, and with which packages."""
