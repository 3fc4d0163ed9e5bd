"""What commands print: for people with rich, for programs as JSON, one document a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(slots=True)
class Output:
    """Where results go. Errors and hints go to standard error, so that output can be piped."""

    as_json: bool = False
    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    errors: Console = field(default_factory=lambda: Console(stderr=True, highlight=False, soft_wrap=True))

    def message(self, message: Message) -> None:
        """Print a message as a line of JSON."""
        self.document(MessageToDict(message))

    def document(self, document: object) -> None:
        """Print any JSON value as one line."""
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def line(self, text: str, style: str = "") -> None:
        """Print a line for people."""
        self.console.print(escape(text), style=style or None)

    def piece(self, text: str, style: str = "") -> None:
        """Print a piece of a line for people, at once."""
        self.console.print(escape(text), style=style or None, end="")

    def hint(self, text: str) -> None:
        """Say something that is not a result."""
        self.errors.print(escape(text), style="dim")

    def error(self, text: str) -> None:
        """Say what went wrong."""
        self.errors.print(f"[bold red]error:[/] {escape(text)}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table for people."""
        table = Table(*columns, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(*(escape(cell) for cell in row))
        self.console.print(table)
