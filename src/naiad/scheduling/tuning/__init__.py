"""Self-tuning: how a model that serves is set up so that it keeps a latency target. Pure decisions."""
