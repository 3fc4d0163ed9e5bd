"""All SQL of the session service, one module per table or concern."""
