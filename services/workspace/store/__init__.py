"""All SQL of the workspace service. One method is one statement or one transaction."""
