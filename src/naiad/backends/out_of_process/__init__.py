"""Framework models outside the server's own process: ``execution=process`` and ``execution=shared``."""
