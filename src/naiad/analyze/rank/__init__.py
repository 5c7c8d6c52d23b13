"""Which measurement is better, and how sure that is."""
