"""The configurations that a search can choose from."""
