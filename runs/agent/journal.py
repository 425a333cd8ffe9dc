"""The journal: events of an agent, written before they are sent, deleted when confirmed.

One SQLite file of mode 0600, used by both of the worker's processes: the pool process writes events, the main process
sends them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from kernels.contract.events import Event, Line, SentLine

MAX_UNCONFIRMED = 500
FORGET_AFTER_S = 7 * 24 * 3600
SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
    run INTEGER, attempt INTEGER, state TEXT NOT NULL, stop TEXT NOT NULL DEFAULT '', confirmed INTEGER NOT NULL DEFAULT 0,
    at REAL NOT NULL, PRIMARY KEY (run, attempt));
CREATE TABLE IF NOT EXISTS lines (
    run INTEGER, attempt INTEGER, seq INTEGER, body TEXT NOT NULL, PRIMARY KEY (run, attempt, seq));
"""

_using_sqlite = threading.Lock()
"""Held during each use and each fork: a pool process forked in between would inherit the state of SQLite's locks."""
os.register_at_fork(
    before=_using_sqlite.acquire, after_in_parent=_using_sqlite.release, after_in_child=_using_sqlite.release
)


class Journal:
    """Attempts are running, ended or interrupted. Lines are their events, numbered from 1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with self._open() as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction: several processes and threads use the file."""
        with _using_sqlite, closing(sqlite3.connect(self.path, timeout=20, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=FULL")
            yield db

    # --- the pool process -----------------------------------------------------------------------------------------

    def begin(self, run: int, attempt: int) -> bool:
        """Starts an attempt. False if the agent knows it already (a duplicate message).

        An attempt that was interrupted before its first event starts again: the site does not know of it and resends
        it.
        """
        with self._open() as db:
            row = db.execute(
                "INSERT INTO attempts (run, attempt, state, at) VALUES (?, ?, 'running', ?)"
                " ON CONFLICT DO UPDATE SET state='running', stop='', at=excluded.at"
                " WHERE state='interrupted' AND stop IN ('', 'shutdown') AND confirmed=0 AND NOT EXISTS"
                " (SELECT 1 FROM lines WHERE lines.run=attempts.run AND lines.attempt=attempts.attempt)",
                (run, attempt, time.time()),
            )
            return row.rowcount == 1

    def write(self, run: int, attempt: int, event: Event) -> int:
        """Writes an event; waits while too many are unconfirmed. Returns its number."""
        while self.unconfirmed() >= MAX_UNCONFIRMED and not self.why_stop(run, attempt):
            time.sleep(1)
        at = datetime.now(UTC)
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            seq = db.execute(
                "SELECT max(coalesce((SELECT max(seq) FROM lines WHERE run=? AND attempt=?), 0),"
                " coalesce((SELECT confirmed FROM attempts WHERE run=? AND attempt=?), 0)) + 1",
                (run, attempt, run, attempt),
            ).fetchone()[0]
            body = Line(run=run, attempt=attempt, seq=seq, at=at, event=event).model_dump_json(by_alias=True)
            db.execute("INSERT INTO lines VALUES (?, ?, ?, ?)", (run, attempt, seq, body))
            db.execute("COMMIT")
        return seq

    def end(self, run: int, attempt: int, state: str = "ended") -> None:
        with self._open() as db:
            db.execute("UPDATE attempts SET state=? WHERE run=? AND attempt=?", (state, run, attempt))

    def why_stop(self, run: int, attempt: int) -> str:
        """ "cancelled", "superseded" or "shutdown" if the attempt should stop; else empty."""
        with self._open() as db:
            row = db.execute("SELECT stop FROM attempts WHERE run=? AND attempt=?", (run, attempt)).fetchone()
        return row[0] if row else ""

    # --- the main process -----------------------------------------------------------------------------------------

    def recover(self) -> None:
        """At start: attempts still marked running were interrupted. Deletes old attempts."""
        with self._open() as db:
            db.execute("UPDATE attempts SET state='interrupted' WHERE state='running'")
            db.execute(
                "DELETE FROM lines WHERE (run, attempt) IN (SELECT run, attempt FROM attempts WHERE stop='superseded')"
            )
            db.execute(
                "DELETE FROM attempts WHERE at < ? AND state != 'running' AND NOT EXISTS"
                " (SELECT 1 FROM lines WHERE lines.run=attempts.run AND lines.attempt=attempts.attempt)",
                (time.time() - FORGET_AFTER_S,),
            )

    def stop(self, run: int, attempt: int | None, why: str) -> None:
        """Asks a running attempt (without a number: all attempts of a run) to stop."""
        with self._open() as db:
            db.execute(
                "UPDATE attempts SET stop=? WHERE run=? AND (? IS NULL OR attempt=?) AND state='running' AND stop=''",
                (why, run, attempt, attempt),
            )

    def stop_all(self, why: str) -> None:
        with self._open() as db:
            db.execute("UPDATE attempts SET stop=? WHERE state='running' AND stop=''", (why,))

    def running(self) -> list[tuple[int, int]]:
        with self._open() as db:
            return db.execute("SELECT run, attempt FROM attempts WHERE state='running'").fetchall()

    def active_attempts(self) -> list[tuple[int, int]]:
        """Attempts that are running or have unconfirmed lines."""
        with self._open() as db:
            return db.execute(
                "SELECT run, attempt FROM attempts WHERE state='running' OR EXISTS"
                " (SELECT 1 FROM lines WHERE lines.run=attempts.run AND lines.attempt=attempts.attempt)"
            ).fetchall()

    def to_tell(self) -> list[tuple[int, int]]:
        """Attempts with unconfirmed lines."""
        with self._open() as db:
            return db.execute("SELECT DISTINCT run, attempt FROM lines ORDER BY run, attempt").fetchall()

    def lines(self, run: int, attempt: int, after: int, most: int = 50) -> list[SentLine]:
        """The next lines after a number, as they are sent; not parsed."""
        with self._open() as db:
            rows = db.execute(
                "SELECT run, attempt, seq, body FROM lines WHERE run=? AND attempt=? AND seq>? ORDER BY seq LIMIT ?",
                (run, attempt, after, most),
            ).fetchall()
        return [SentLine(*line) for line in rows]

    def confirm(self, run: int, attempt: int, seq: int) -> None:
        """The site has stored everything up to `seq`: deletes those lines."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("DELETE FROM lines WHERE run=? AND attempt=? AND seq<=?", (run, attempt, seq))
            db.execute("UPDATE attempts SET confirmed=max(confirmed, ?) WHERE run=? AND attempt=?", (seq, run, attempt))
            db.execute("COMMIT")

    def drop(self, run: int, attempt: int) -> None:
        """Deletes the lines of a superseded attempt."""
        with self._open() as db:
            db.execute("DELETE FROM lines WHERE run=? AND attempt=?", (run, attempt))

    def unconfirmed(self) -> int:
        with self._open() as db:
            return db.execute("SELECT count(*) FROM lines").fetchone()[0]
