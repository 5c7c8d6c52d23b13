"""Access control: restricted features and API keys."""
