"""The command line of ``naiad perf``, read into settings."""
