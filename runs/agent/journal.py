"""The journal: events of an agent, written before they are sent, deleted when confirmed.

One SQLite file of mode 0600, used by both of the worker's processes: the pool process writes events, the main process
sends them. What is executed now is not in it (current.py): a full disk or a lock cannot keep a device busy.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakSet

from kernels.contract.events import Event, Line, SentLine

log = logging.getLogger(__name__)
MAX_UNCONFIRMED = 500
FORGET_AFTER_S = 7 * 24 * 3600
BUSY_S = 2.0
"""Longest wait for a lock. A process holds `_using_sqlite` meanwhile, so its other threads wait as long."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
    run INTEGER, attempt INTEGER, state TEXT NOT NULL, confirmed INTEGER NOT NULL DEFAULT 0, at REAL NOT NULL,
    PRIMARY KEY (run, attempt));
CREATE TABLE IF NOT EXISTS lines (
    run INTEGER, attempt INTEGER, seq INTEGER, body TEXT NOT NULL, PRIMARY KEY (run, attempt, seq));
"""

_using_sqlite = threading.Lock()
"""Held during each use and each fork."""
_journals: WeakSet[Journal] = WeakSet()


def _before_fork() -> None:
    """A process forked beside an open connection would inherit the state of SQLite's locks."""
    _using_sqlite.acquire()
    for journal in _journals:
        journal._close()


os.register_at_fork(before=_before_fork, after_in_parent=_using_sqlite.release, after_in_child=_using_sqlite.release)


class Journal:
    """Attempts are begun or ended. Lines are their events, numbered from 1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of what the connection has open."""
        _journals.add(self)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._create()
        except sqlite3.OperationalError:  # locked, or the disk is full: the file itself may be whole
            raise
        except sqlite3.DatabaseError as error:
            self._put_aside(error)
            self._create()

    def _create(self) -> None:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        with self._open() as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(SCHEMA)
            if (found := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(found)

    def _put_aside(self, error: Exception) -> None:
        """Keeps a damaged file under another name. The site resumes what it was about."""
        name = f"{self.path.name}.damaged-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        log.error("the journal %s is damaged (%s); kept as %s", self.path, error, name)
        for suffix in ("", "-wal", "-shm"):
            if (part := self.path.with_name(self.path.name + suffix)).exists():
                part.rename(self.path.with_name(name + suffix))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one transaction: the threads of this process share it. After an error it is opened anew."""
        with _using_sqlite:
            try:
                yield self._connected()
            except BaseException:
                self._close()
                raise

    def _connected(self) -> sqlite3.Connection:
        """Opened at the first use, and again after a fork, or where there is another file now."""
        if self._db is None or self._file != self._there():
            self._close()
            self._db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous=FULL")
            self._file = self._there()
        return self._db

    def _there(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    # --- the pool process -----------------------------------------------------------------------------------------

    def begin(self, run: int, attempt: int) -> bool:
        """Starts an attempt. False if the agent knows it already (a duplicate message).

        An attempt that was interrupted before its first event starts again: the site does not know of it and resends
        it.
        """
        with self._open() as db:
            row = db.execute(
                "INSERT INTO attempts (run, attempt, state, at) VALUES (?, ?, 'begun', ?)"
                " ON CONFLICT DO UPDATE SET state='begun', at=excluded.at"
                " WHERE state!='ended' AND confirmed=0 AND NOT EXISTS"
                " (SELECT 1 FROM lines WHERE lines.run=attempts.run AND lines.attempt=attempts.attempt)",
                (run, attempt, time.time()),
            )
            return row.rowcount == 1

    def write(self, run: int, attempt: int, event: Event) -> int:
        """Writes an event. Returns its number."""
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

    def end(self, run: int, attempt: int) -> None:
        """The attempt is over: it is never begun again."""
        with self._open() as db:
            db.execute("UPDATE attempts SET state='ended' WHERE run=? AND attempt=?", (run, attempt))

    # --- the main process -----------------------------------------------------------------------------------------

    def forget_old(self) -> None:
        """Deletes attempts of last week."""
        with self._open() as db:
            db.execute(
                "DELETE FROM attempts WHERE at < ? AND NOT EXISTS"
                " (SELECT 1 FROM lines WHERE lines.run=attempts.run AND lines.attempt=attempts.attempt)",
                (time.time() - FORGET_AFTER_S,),
            )

    def last_lines(self) -> dict[tuple[int, int], int]:
        """(run, attempt) -> number of its last line, of attempts with unconfirmed lines."""
        with self._open() as db:
            found = db.execute("SELECT run, attempt, max(seq) FROM lines GROUP BY run, attempt ORDER BY run, attempt")
            return {(run, attempt): seq for run, attempt, seq in found}

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
