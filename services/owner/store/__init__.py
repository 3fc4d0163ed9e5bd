"""All SQL of the owner service, by table."""
