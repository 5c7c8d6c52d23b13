"""How requests are sent: one module for each service."""
