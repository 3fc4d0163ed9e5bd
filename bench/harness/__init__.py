"""What all benches share: rounds that take turns, results, places on one disk, the report."""
