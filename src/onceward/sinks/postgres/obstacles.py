"""What the server says before an append: how many transactions it keeps prepared, and what would hold them up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onceward.connections.postgres import PostgresError, Session
from onceward.sinks.obstacles import Obstacle, standing
from onceward.sinks.postgres.options import TableName

_NO_SCHEMA = ("3F000", "42P01")
_DETAILS = {
    "unique": "index {name!r} of {table!r} is unique",
    "exclusion": "constraint {name!r} of {table!r} excludes rows by others",
    "foreign key": "foreign key {name!r} of {table!r} locks the rows it refers to",
    "trigger": "trigger {name!r} of {table!r} may lock anything",
    "foreign table": "partition {name!r} is a foreign table, which cannot be prepared",
}
# Read from the catalog alone, and not through functions that would wait for a lock on the table. Rows that COPY brings
# to a partitioned table meet what stands on its partitions. A key is numbered when the server gives it a value that it
# gives to no other row: by an identity, a sequence, or a random UUID, and nothing is computed from that.
_QUERY = """\
WITH RECURSIVE tree AS (
    SELECT c.oid, c.relname, c.relkind FROM pg_class c WHERE c.oid = to_regclass($1)
    UNION ALL
    SELECT c.oid, c.relname, c.relkind FROM tree t JOIN pg_inherits i ON i.inhparent = t.oid AND t.relkind = 'p'
        JOIN pg_class c ON c.oid = i.inhrelid
), found AS (
    SELECT 1 AS place, CASE WHEN i.indisexclusion THEN 'exclusion' ELSE 'unique' END AS kind, t.relname AS table,
        x.relname AS name, ARRAY(
            SELECT a.attname::text FROM pg_attribute a
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = t.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
                AND NOT i.indisexclusion AND (a.attidentity <> '' OR (a.attgenerated = ''
                    AND d.adbin::text LIKE '{FUNCEXPR %' AND d.adbin::text NOT LIKE '%{OPEXPR %' AND EXISTS (
                        SELECT FROM regexp_matches(d.adbin::text, ':funcid (\\d+)', 'g') AS m JOIN pg_proc p
                        ON p.oid = m[1]::oid WHERE p.proname IN ('nextval', 'gen_random_uuid', 'uuidv4', 'uuidv7',
                            'uuid_generate_v1', 'uuid_generate_v1mc', 'uuid_generate_v4'))))
        ) AS numbered
    FROM tree t JOIN pg_index i ON i.indrelid = t.oid JOIN pg_class x ON x.oid = i.indexrelid
    WHERE i.indisunique OR i.indisexclusion
    UNION ALL
    SELECT 2, 'foreign key', t.relname, c.conname, '{}' FROM tree t
        JOIN pg_constraint c ON c.conrelid = t.oid AND c.contype = 'f'
    UNION ALL
    SELECT 3, 'trigger', t.relname, g.tgname, '{}' FROM tree t
        JOIN pg_trigger g ON g.tgrelid = t.oid AND NOT g.tgisinternal AND g.tgenabled IN ('O', 'A')
            AND g.tgtype::int & 4 <> 0
    UNION ALL
    SELECT 4, 'foreign table', relname, relname, '{}' FROM tree WHERE relkind = 'f'
)
SELECT current_setting('max_prepared_transactions')::int, f.kind, f.table::text, f.name::text, f.numbered
FROM (VALUES (1)) AS one LEFT JOIN found f ON true ORDER BY f.place, f.table, f.name
"""


@dataclass(frozen=True, slots=True)
class Room:
    """For prepared transactions: how many there can be, and what stands against them."""

    prepared: int
    obstacles: tuple[Obstacle, ...]

    def why_not(self, filled: Iterable[str] = ()) -> str | None:
        """Why rows with these columns cannot wait in prepared transactions; None when they can."""
        if not self.prepared:
            return "the server has max_prepared_transactions = 0"
        return standing(self.obstacles, filled)


def ask(session: Session, table: TableName) -> Room:
    """One statement, which waits for no lock on the table. A table that does not exist has nothing."""
    try:
        rows = session.run(_QUERY, str(table))
    except PostgresError as error:
        if error.sqlstate not in _NO_SCHEMA:
            raise
        rows = session.run("SELECT current_setting('max_prepared_transactions')::int, NULL, NULL, NULL, NULL")
    return Room(rows[0][0], tuple(_obstacles(rows)))


def _obstacles(rows: Sequence[tuple[int, str | None, str, str, Sequence[str]]]) -> Iterable[Obstacle]:
    for _, kind, table, name, numbered in rows:
        if kind is not None:
            yield Obstacle(_DETAILS[kind].format(name=name, table=table), frozenset(numbered))
