"""The workspace service: directories that agents work on, and the processes in them."""
