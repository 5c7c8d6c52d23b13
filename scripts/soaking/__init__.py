"""What `scripts/soak` consists of; it stands on the parts of the benchmarks."""
