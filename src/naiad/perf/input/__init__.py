"""What requests hold: generated, or read from files."""
