"""The process that fills a workspace: one for each try, with the standard library only.

Run as `python -I -S DIRECTORY-OF-THIS-PACKAGE` in the workspace's root, which nobody else uses
yet. It reads a job (see `job.py`) from standard input and writes how it went to standard output.
What comes from outside is judged here, so that nothing of it costs the instance its memory, its
time or its event loop: the instance kills this process when it lasts too long.
"""
