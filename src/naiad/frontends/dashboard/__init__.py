"""The dashboard: a page on the HTTP port that shows models and requests as they are now, and steers models."""
