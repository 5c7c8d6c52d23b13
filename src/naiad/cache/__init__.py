"""The response cache."""
