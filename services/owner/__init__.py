"""The owner service: leases over names, fencing tokens, signed grants."""
