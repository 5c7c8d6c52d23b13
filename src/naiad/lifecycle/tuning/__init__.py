"""Self-tuning of the models that serve: reads their counters and carries out what ``scheduling/tuning`` decides."""
