"""Other inference servers on the same networks: environments, their applications, and the load."""
