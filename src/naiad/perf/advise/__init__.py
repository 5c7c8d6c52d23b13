"""``naiad perf advise``: tries configurations of a model against its server, and says which one serves it best."""
