"""The tables inside a store file.

Their version counts from the first release. Whoever changes them raises `VERSION` and has `connection` bring older
stores up to it.
"""

from __future__ import annotations

APPLICATION_ID = 0x41545242  # "ATRB" in the file header: an SQLite file without it is somebody else's
VERSION = 2

# What `counts` says of each of `cells`, from the tables themselves.
SCANNED = ", ".join(
    f"(SELECT {what} FROM {table} WHERE cell = cells.key)"
    for what, table in (
        ("count(*)", "problems"),
        ("count(*)", "responses"),
        ("coalesce(sum(truncated), 0)", "responses"),
        ("coalesce(sum(num_tokens), 0)", "responses"),
        ("coalesce(sum(num_thought), 0)", "responses"),
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
        choices TEXT NOT NULL, meta TEXT NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (cell, problem_id)
    )""",
    """CREATE TABLE skipped (
        cell TEXT NOT NULL REFERENCES cells, problem_id TEXT NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (cell, problem_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE responses (
        cell TEXT NOT NULL, problem_id TEXT NOT NULL, repeat INTEGER NOT NULL, prompt_hash TEXT NOT NULL,
        text TEXT NOT NULL, num_tokens INTEGER NOT NULL, seconds REAL NOT NULL, truncated INTEGER NOT NULL,
        num_thought INTEGER NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (cell, problem_id, repeat), FOREIGN KEY (cell, problem_id) REFERENCES problems
    )""",
    """CREATE TABLE grades (
        cell TEXT NOT NULL, problem_id TEXT NOT NULL, repeat INTEGER NOT NULL, extracted TEXT, state TEXT NOT NULL,
        grader TEXT NOT NULL, why TEXT NOT NULL, score REAL, details TEXT NOT NULL DEFAULT '{}',
        checksum INTEGER NOT NULL,
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
        checksum INTEGER NOT NULL, PRIMARY KEY (judge, question)
    ) WITHOUT ROWID""",
    # What a cell holds, kept by the store itself: counting four million answers takes a minute. `version` is drawn
    # anew whenever anything of a cell's problems, answers or verdicts changes: equal means unchanged.
    """CREATE TABLE counts (
        cell TEXT PRIMARY KEY REFERENCES cells, problems INTEGER NOT NULL, responses INTEGER NOT NULL,
        truncated INTEGER NOT NULL, tokens INTEGER NOT NULL, thought INTEGER NOT NULL, graded INTEGER NOT NULL,
        version INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TRIGGER cells_INSERT AFTER INSERT ON cells BEGIN"
    " INSERT INTO counts VALUES (NEW.key, 0, 0, 0, 0, 0, 0, random()); END",
    *(
        f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN"
        f" UPDATE counts SET {change} version = random() WHERE cell = {row}.cell; END"
        for event, row, sign in (("INSERT", "NEW", "+"), ("DELETE", "OLD", "-"))
        for table, change in (
            ("problems", f"problems = problems {sign} 1,"),
            (
                "responses",
                f"responses = responses {sign} 1, truncated = truncated {sign} {row}.truncated,"
                f" tokens = tokens {sign} {row}.num_tokens, thought = thought {sign} {row}.num_thought,",
            ),
            ("grades", f"graded = graded {sign} 1,"),
            ("skipped", ""),
        )
    ),
    *(
        f"CREATE TRIGGER {table}_UPDATE AFTER UPDATE ON {table} BEGIN"
        f" UPDATE counts SET {change} version = random() WHERE cell = NEW.cell; END"
        for table, change in (
            ("problems", ""),
            (
                "responses",
                "truncated = truncated - OLD.truncated + NEW.truncated,"
                " tokens = tokens - OLD.num_tokens + NEW.num_tokens,"
                " thought = thought - OLD.num_thought + NEW.num_thought,",
            ),
            ("grades", ""),
            ("skipped", ""),
        )
    ),
    # What a page was last made from, and its files: a page of what has not changed is left alone.
    "CREATE TABLE pages (name TEXT PRIMARY KEY, key TEXT NOT NULL, files TEXT NOT NULL) WITHOUT ROWID",
)

PROBLEM = ("group", "question", "gold", "choices", "meta", "checksum")
# Of which columns the checksum of a record is, the first being whose record it is; answers have theirs.
CHECKED = {
    "problems": ("cell", "problem_id", "group", "question", "gold", "choices", "meta"),
    "grades": ("cell", "problem_id", "repeat", "state", "extracted", "grader", "why", "score", "details"),
    "judgements": ("judge", "question", "state", "why", "created"),
}

# What writes, by the names under which processes hand it over to the one that carries it out. None leaves a column of a
# cell or a run as it was.
WRITES = {
    "add_cell": "INSERT OR IGNORE INTO cells (key, spec, created, updated) VALUES (?, ?, ?, ?)",
    "update_cell": "UPDATE cells SET state = ?, reason = ?, expected = ifnull(?, expected), updated = ? WHERE key = ?",
    "add_problem": f"""INSERT INTO problems VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        {", ".join(f'"{name}" = excluded."{name}"' for name in PROBLEM)}
        WHERE ({", ".join(f'problems."{name}"' for name in PROBLEM)})
        IS NOT ({", ".join(f'excluded."{name}"' for name in PROBLEM)})""",
    "add_skipped": "INSERT OR REPLACE INTO skipped VALUES (?, ?, ?)",
    "add_response": "INSERT OR IGNORE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "drop_response": "DELETE FROM responses WHERE cell = ? AND problem_id = ? AND repeat = ?",
    "add_verdict": """INSERT INTO grades (cell, problem_id, repeat, state, extracted, grader, why, score, details,
        checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        state = excluded.state, extracted = excluded.extracted, grader = excluded.grader, why = excluded.why,
        score = excluded.score, details = excluded.details, checksum = excluded.checksum""",
    "drop_verdict": "DELETE FROM grades WHERE cell = ? AND problem_id = ? AND repeat = ?",
    "recount": f"INSERT OR REPLACE INTO counts SELECT key, {SCANNED}, random() FROM cells WHERE key = ?",
    "add_judgement": "INSERT OR IGNORE INTO judgements VALUES (?, ?, ?, ?, ?, ?)",
    "drop_judgement": "DELETE FROM judgements WHERE judge = ? AND question = ?",
    "add_run": "INSERT OR IGNORE INTO runs (key, spec, created, updated) VALUES (?, ?, ?, ?)",
    "update_run": """UPDATE runs SET state = ?, reason = ?, checkpoint = ifnull(?, checkpoint),
        digest = ifnull(?, digest), seconds = ifnull(?, seconds), summary = ifnull(?, summary), updated = ?
        WHERE key = ?""",
    "keep_page": "INSERT OR REPLACE INTO pages VALUES (?, ?, ?)",
    "heartbeat": """INSERT INTO progress VALUES (?1, ?2, ?3, ?4, ?5, ?3, ?5, ?6) ON CONFLICT DO UPDATE SET
        started = CASE WHEN ?3 < done OR ?5 NOT BETWEEN updated AND updated + 600 THEN ?5 ELSE started END,
        start_done = CASE WHEN ?3 < done OR ?5 NOT BETWEEN updated AND updated + 600 THEN ?3 ELSE start_done END,
        done = ?3, total = ?4, updated = ?5, place = ?6""",
}
