"""A load that is spread over processes of the generator: ``--client-workers``."""
