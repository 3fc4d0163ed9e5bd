"""Checks how well an agent keeps to the Agent Client Protocol, from the client's side alone.

`python -m services.runner.verify` starts it several times over and prints a finding a line, as
JSON; it needs no service and changes none. What the agent asks for is refused.
"""
