"""What all services share: error kinds, settings, serving, the database pool, telemetry. Knows no service."""

import os

# Before anything starts gRPC's core: its own lines are not JSON and repeat what calls report.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
