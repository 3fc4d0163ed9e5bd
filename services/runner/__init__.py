"""The runner: drives agents. Holds leases, speaks the Agent Client Protocol, journals what agents do."""
