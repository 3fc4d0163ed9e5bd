"""The built-in demo agent: an Agent Client Protocol (version 1) agent that does what it is told.

It needs no key, no network and nothing but the standard library; `python -I -S <this directory>`
starts it wherever a Python 3.11 is. It reads JSON-RPC from stdin, writes to stdout and ends with
its input. Each line of a prompt is one command, in any case:

    say TEXT                    streams TEXT
    think TEXT                  streams TEXT as a thought
    run COMMAND                 runs a shell command as a tool call, in the session's directory
    ask to run COMMAND          asks for permission first (once, always in this session, or no)
    fill in NAME[, NAME...]     has the client ask for values, and streams them
    terminal COMMAND            has the client run it in a terminal, as a tool call
    read FILE [from line N]     has the client read a file below the session's directory, or some
      [for N lines]             of its lines, and streams them
    write FILE TEXT             has the client write TEXT and a line end to a file
    sleep SECONDS               waits
    count to N                  streams 1 to N, a number per chunk; each is in the log before it is
      [into FILE]               sent. The log is appended to: FILE, below the session's directory,
      [every SECONDS]           or .moorage-demo/<native session id>/count.log
    remember TEXT               keeps TEXT in this native session
    recall                      streams all that is kept
    who are you | pid           process id, native session id, traceparent
    fail [TEXT]                 the prompt is answered with a JSON-RPC error
    exit CODE                   the process ends in the middle of the prompt
    hang                        never ends, ignores session/cancel and the end of its input
    hang hard                   ignores SIGTERM, too
    help                        streams this table
    > TEXT                      quotes what was said elsewhere: does nothing
    anything else               a plan, a thought and an echo in several chunks

A session is kept in .moorage-demo/<native session id>/journal.jsonl below its directory and can be
loaded by another process. session/cancel is honoured by everything but `hang`; a tool's process
group is killed with it, and dies with the agent however that ends.
"""
