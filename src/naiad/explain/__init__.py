"""``naiad explain``: every field of a model's configuration with its value, its origin, its meaning and its metric."""
