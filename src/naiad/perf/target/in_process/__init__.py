"""A model that runs in the process of the load generator."""
