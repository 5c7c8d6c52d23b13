"""When requests are sent: concurrencies, rates, schedules, sequences, searches."""
