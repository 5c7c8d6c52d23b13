"""Where measurements come from: a server, or this process."""
