"""What holders and verifiers of leases share: a process's lease loop, the key cache, the grant verifier."""
