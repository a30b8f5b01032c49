"""What the sink relies on in the target: taken at the check, and looked at again in every transaction that writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from onceward.connections.mysql import Session
from onceward.contracts import refuse_change
from onceward.errors import TargetRefused
from onceward.sinks.mysql.compatibility import refuse_engines, refuse_table
from onceward.sinks.mysql.look import Seen, look
from onceward.sinks.mysql.options import Options
from onceward.sinks.mysql.receipts import RECEIPTS, WATERMARKS
from onceward.sinks.mysql.table import Server, Table, ask_server

OURS = (RECEIPTS, WATERMARKS)


@dataclass
class TargetFacts:
    """Of one sink, by both its templates. Picklable: executors compare with what the driver has found."""

    options: Options
    facts: Mapping[str, str] | None = None
    _server: Server | None = None
    _schema: pa.Schema | None = None

    def take(self, session: Session, schema: pa.Schema, server: Server) -> None:
        """Refuse what does not fit this stream, and remember the rest. The tables must be there."""
        options = self.options
        seen = look(session, options.database, options.table, server, ours=OURS)
        self._accept(seen, self._stored(schema), server)

    @property
    def is_taken(self) -> bool:
        """Whether there was a check, or a transaction with rows."""
        return self._schema is not None

    def confirm(self, session: Session, schema: pa.Schema, *, epoch: int) -> Table:
        """Inside the transaction, before it writes: the target, which stays like this until the transaction ends.

        `TargetChanged` when it is not as it was. One statement. A sink that was never checked, as a command has it,
        examines the target here.
        """
        options = self.options
        if self._server is None:
            self._server = ask_server(session)
        seen = look(session, options.database, options.table, self._server, ours=OURS, locked=True)
        if seen.target is None:
            raise TargetRefused(f"there is no table {options.table!r} any more", hint="start again")
        if self._schema is not None:
            refuse_change(self.facts or {}, facts_of(seen, self.options, self._schema), epoch=epoch)
        elif schema.names:
            self._accept(seen, self._stored(schema), self._server)
        else:
            refuse_engines(seen.target, seen.ours, options)
        return seen.target

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([one for one in schema if self.options.is_stored(one.name)])

    def _accept(self, seen: Seen, stored: pa.Schema, server: Server) -> None:
        if seen.target is not None:
            refuse_engines(seen.target, seen.ours, self.options)
            refuse_table(seen.target, self.options, stored, server)
        self._server, self._schema = server, stored
        self.facts = facts_of(seen, self.options, stored)


def facts_of(seen: Seen, options: Options, stored: pa.Schema) -> Mapping[str, str]:
    """Only what the promise rests on: a table may well get another index or column while the job runs."""
    facts = {f"engine of {name}": table.engine for name, table in seen.ours.items()}
    if seen.target is None:
        return facts
    table, target, names = seen.target, repr(options.table), [name.lower() for name in stored.names]
    facts[f"engine of {target}"] = table.engine
    before = [str(trigger) for trigger in table.triggers if trigger.may_change_values]
    facts[f"triggers of {target} before rows are stored"] = "; ".join(before) or "none"
    facts[f"columns of {target} that need a value"] = (
        ", ".join(column.name for name, column in table.columns.items() if column.is_required and name not in names)
        or "none"
    )
    if options.mode == "upsert":
        facts[f"unique indexes of {target}"] = "; ".join(map(str, table.unique)) or "none"
    for name in names:
        if name in table.columns:
            facts[f"column {table.columns[name].name!r}"] = str(table.columns[name])
    return facts
