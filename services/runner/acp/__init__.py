"""The client side of the Agent Client Protocol: own transport and connection on the published schema.

stream ─► lines ─► transport (bounded queue, one writer) ─► rpc (requests and answers) ─► connection
                                                                    connection ─► records, coalescer
"""
