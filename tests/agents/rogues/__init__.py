"""Agents with bad habits, each with one of its own; `python -I -S <this directory> HABIT [ARGUMENT...]`.

They need nothing but the standard library, so that they can be started like any other agent.

| file | habits |
| --- | --- |
| `openings.py` | before they are prompted: exits, logins, other versions, updates that come too early |
| `noises.py` | what no schema knows, or in a form that few expect |
| `floods.py` | more than anybody can take at once |
| `ends.py` | prompts that end in strange ways, twice, or not at all |
| `cancels.py` | cancels that are ignored, lost, answered twice |
| `questions.py` | questions that nobody can answer, too many, too late |
| `errands.py` | files and terminals beyond what is allowed, many at once |
| `settings.py` | none; its modes, models and options can be set |
| `leftovers.py` | processes that are left behind |
"""
