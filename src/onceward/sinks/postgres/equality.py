"""When two rows have one key: as the unique index says that ON CONFLICT goes by, and never as `=` happens to be found.

An `=` in a statement is looked up in the search path, and compares by the column's collation. The index has an operator
and a collation of its own, so every comparison here names both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onceward.connections.postgres import quoted
from onceward.errors import TargetRefused
from onceward.sinks.postgres.options import Options
from onceward.sinks.postgres.table import Index, KeyPart, Table

_MAY_BE_NONDETERMINISTIC = ("text", "varchar", "bpchar")
# Of these two values can be one key and read differently: 1.0 and 1.00, 'A' and 'a', 0.0 and -0.0.
_SPELT_DIFFERENTLY = ("numeric", "citext", "bpchar", "float4", "float8", "jsonb", "interval")


@dataclass(frozen=True, slots=True)
class Keys:
    """The key columns, as the table spells them, with the index's notion of equality."""

    parts: tuple[KeyPart, ...]
    rewritten: tuple[str, ...]
    """Those that a row takes over from its successor of the same key, since that may spell it differently."""

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return [part.column for part in self.parts]

    @property
    def grouping(self) -> str:
        """For PARTITION BY."""
        return ", ".join(_expression("", part) for part in self.parts)

    @property
    def same(self) -> str:
        """Whether the rows `t` and `s` have one key, none of which is null."""
        return " AND ".join(
            f"{_expression('t.', part)} {part.operator} {_expression('s.', part)}" for part in self.parts
        )

    @property
    def same_with_null(self) -> str:
        """The same for keys with a null in them. Compared as whole records two nulls are equal, and the server can hash
        them; it compares their fields by the types' own operators, which are the index's too."""
        some_null = " OR ".join(f"s.{quoted(part.column)} IS NULL" for part in self.parts)
        ours, theirs = (", ".join(_expression(f"{alias}.", part) for part in self.parts) for alias in "st")
        return f"({some_null}) AND ROW({ours})::record OPERATOR(pg_catalog.=) ROW({theirs})::record"


def _expression(alias: str, part: KeyPart) -> str:
    column = f"{alias}{quoted(part.column)}"
    compared = f"{column}::{part.compared_as}" if part.compared_as is not None else column
    return f"({compared} COLLATE {part.collation})" if part.collation is not None else compared


def keys_of(table: Table, options: Options) -> Keys:
    """The keys by the table's unique index; `TargetRefused` when it has none, or one that cannot be gone by."""
    names = [column.name for column in map(table.column, options.keys) if column is not None]
    serving = [index for index in table.indexes if index.is_ours and index.columns == frozenset(names)]
    if not serving:
        raise TargetRefused(
            f"table {options.table} has no unique index on {', '.join(options.keys)}, which an upsert needs",
            hint=f"run: CREATE UNIQUE INDEX ON {options.table} ({', '.join(quoted(name) for name in options.keys)})",
        )
    _refuse_different(serving, options)
    by_column = {part.column: part for part in serving[0].parts}
    parts = tuple(by_column[name] for name in names)
    for part in parts:
        _refuse_unusable(serving[0], part, table)
    return Keys(parts, tuple(part.column for part in parts if _may_be_spelt_differently(table, part)))


def _may_be_spelt_differently(table: Table, part: KeyPart) -> bool:
    return not part.is_deterministic or table.columns[part.column].kind.removeprefix("_") in _SPELT_DIFFERENTLY


def _refuse_different(serving: Sequence[Index], options: Options) -> None:
    """ON CONFLICT would go by all of them at once."""
    first, *others = serving
    for other in others:
        if {part.column: part.equality for part in other.parts} != {part.column: part.equality for part in first.parts}:
            raise TargetRefused(
                f"the unique indexes {first.name!r} and {other.name!r} of {options.table} do not take the same keys "
                f"for equal: {first.definition}, and {other.definition}",
                hint=f"drop one of them: DROP INDEX {quoted(other.name)}",
            )


def _refuse_unusable(index: Index, part: KeyPart, table: Table) -> None:
    kind = table.columns[part.column].kind
    if not part.is_default:
        why = f"by the operator class {part.operator_class}, whose equality is not that of the type"
    elif not part.is_deterministic and (part.compared_as or kind) not in _MAY_BE_NONDETERMINISTIC:
        why = f"of type {kind} by the non-deterministic collation {part.collation}"
    else:
        return
    raise TargetRefused(
        f"the unique index {index.name!r} of {table} compares column {part.column!r} {why}",
        hint="make a unique index with the type's own operator class and a deterministic collation, and drop this one",
    )
