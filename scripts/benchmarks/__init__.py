"""The benchmarks behind ``scripts/bench``: they start the server as a user does and talk to it over the loopback."""
