"""The tables inside a store file.

Their version counts from the first release. Whoever changes them raises `VERSION` and has `connection` bring older
stores up to it.
"""

from __future__ import annotations

APPLICATION_ID = 0x41545242  # "ATRB" in the file header: an SQLite file without it is somebody else's
VERSION = 1

# What `counts` says of each of `cells`, from the tables themselves.
SCANNED = ", ".join(
    f"(SELECT {what} FROM {table} WHERE cell = cells.key)"
    for what, table in (
        ("count(*)", "problems"),
        ("count(*)", "responses"),
        ("coalesce(sum(truncated), 0)", "responses"),
        ("count(*)", "grades"),
    )
)

# Tables of long texts keep their rowid: their key is then a small index of its own, which counting reads instead of the
# texts. The others are their own index.
STATEMENTS = (
    """CREATE TABLE cells (
        key TEXT PRIMARY KEY, spec TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
        expected INTEGER, created REAL NOT NULL, updated REAL NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE problems (
        cell TEXT NOT NULL REFERENCES cells, problem_id TEXT NOT NULL, position INTEGER NOT NULL,
        "group" TEXT NOT NULL, question TEXT NOT NULL, gold TEXT NOT NULL,
        choices TEXT NOT NULL, meta TEXT NOT NULL,
        PRIMARY KEY (cell, problem_id)
    )""",
    """CREATE TABLE skipped (
        cell TEXT NOT NULL REFERENCES cells, problem_id TEXT NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (cell, problem_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE responses (
        cell TEXT NOT NULL, problem_id TEXT NOT NULL, repeat INTEGER NOT NULL, prompt_hash TEXT NOT NULL,
        text TEXT NOT NULL, num_tokens INTEGER NOT NULL, seconds REAL NOT NULL, truncated INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (cell, problem_id, repeat), FOREIGN KEY (cell, problem_id) REFERENCES problems
    )""",
    """CREATE TABLE grades (
        cell TEXT NOT NULL, problem_id TEXT NOT NULL, repeat INTEGER NOT NULL, extracted TEXT, state TEXT NOT NULL,
        grader TEXT NOT NULL, why TEXT NOT NULL, score REAL, details TEXT NOT NULL DEFAULT '{}',
        PRIMARY KEY (cell, problem_id, repeat), FOREIGN KEY (cell, problem_id, repeat) REFERENCES responses
    ) WITHOUT ROWID""",
    """CREATE TABLE runs (
        key TEXT PRIMARY KEY, spec TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
        checkpoint TEXT NOT NULL DEFAULT '', digest TEXT NOT NULL DEFAULT '', seconds REAL,
        summary TEXT NOT NULL DEFAULT '{}', created REAL NOT NULL, updated REAL NOT NULL
    ) WITHOUT ROWID""",
    # `place` is the machine of a cluster that works on it.
    """CREATE TABLE progress (
        kind TEXT NOT NULL, key TEXT NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL,
        started REAL NOT NULL, start_done INTEGER NOT NULL, updated REAL NOT NULL, place TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (kind, key)
    ) WITHOUT ROWID""",
    # What a judge said once, whichever cell it was asked for.
    """CREATE TABLE judgements (
        judge TEXT NOT NULL, question TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL, created REAL NOT NULL,
        PRIMARY KEY (judge, question)
    ) WITHOUT ROWID""",
    # What a cell holds, kept by the store itself: counting four million answers takes a minute. `version` is drawn
    # anew whenever anything of a cell's problems, answers or verdicts changes: equal means unchanged.
    """CREATE TABLE counts (
        cell TEXT PRIMARY KEY REFERENCES cells, problems INTEGER NOT NULL, responses INTEGER NOT NULL,
        truncated INTEGER NOT NULL, graded INTEGER NOT NULL, version INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TRIGGER cells_INSERT AFTER INSERT ON cells BEGIN"
    " INSERT INTO counts VALUES (NEW.key, 0, 0, 0, 0, random()); END",
    *(
        f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN"
        f" UPDATE counts SET {change} version = random() WHERE cell = {row}.cell; END"
        for event, row, sign in (("INSERT", "NEW", "+"), ("DELETE", "OLD", "-"))
        for table, change in (
            ("problems", f"problems = problems {sign} 1,"),
            ("responses", f"responses = responses {sign} 1, truncated = truncated {sign} {row}.truncated,"),
            ("grades", f"graded = graded {sign} 1,"),
            ("skipped", ""),
        )
    ),
    *(
        f"CREATE TRIGGER {table}_UPDATE AFTER UPDATE ON {table} BEGIN"
        f" UPDATE counts SET {change} version = random() WHERE cell = NEW.cell; END"
        for table, change in (
            ("problems", ""),
            ("responses", "truncated = truncated - OLD.truncated + NEW.truncated,"),
            ("grades", ""),
            ("skipped", ""),
        )
    ),
    # What a page was last made from, and its files: a page of what has not changed is left alone.
    "CREATE TABLE pages (name TEXT PRIMARY KEY, key TEXT NOT NULL, files TEXT NOT NULL) WITHOUT ROWID",
)
