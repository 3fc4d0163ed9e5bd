"""The command line: a client of the session service, and what starts the services on one machine."""
