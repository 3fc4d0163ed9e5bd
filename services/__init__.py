"""The product: four services, what they share, and the operator's command."""
