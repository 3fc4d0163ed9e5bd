"""What all services share: error kinds, settings, serving, the database pool, clocks, telemetry. Knows no service."""
