"""The ``parameters`` that each backend reads, as tables."""
