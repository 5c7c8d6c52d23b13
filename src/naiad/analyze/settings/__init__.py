"""What a configuration file and a command line ask for, with the reference's keys."""
