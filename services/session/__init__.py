"""The session service: sessions, turns, records; admission, dispatch, settlement, watching."""
