"""Who may ask for what: restricted features and API keys."""
