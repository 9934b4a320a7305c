"""The tables inside a store file.

Answers and verdicts name their problem by a number, and the text of an answer is packed: `responses` and `grades` are
views of them with the cell, the problem's name and the text itself. Whoever changes the tables raises `VERSION`: a
store of another is refused, and from the first release on `connection` brings older ones up to it.
"""

from __future__ import annotations

APPLICATION_ID = 0x41545242  # "ATRB" in the file header: an SQLite file without it is somebody else's
VERSION = 3

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

OF_PROBLEM = "(SELECT cell FROM problems WHERE number = {}.problem)"
PROBLEM_NUMBER = "(SELECT number FROM problems WHERE cell = ?1 AND problem_id = ?2)"
DICTIONARY = "(SELECT content FROM dictionaries WHERE dictionaries.cell = problems.cell)"

# Tables of long texts keep their rowid: their key is then a small index of its own, which counting reads instead of the
# texts. The others are their own index.
TABLES = (
    """CREATE TABLE IF NOT EXISTS cells (
        key TEXT PRIMARY KEY, spec TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
        expected INTEGER, created REAL NOT NULL, updated REAL NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS problems (
        number INTEGER PRIMARY KEY,
        cell TEXT NOT NULL REFERENCES cells, problem_id TEXT NOT NULL, position INTEGER NOT NULL,
        "group" TEXT NOT NULL, question TEXT NOT NULL, gold TEXT NOT NULL,
        choices TEXT NOT NULL, meta TEXT NOT NULL, checksum INTEGER NOT NULL,
        UNIQUE (cell, problem_id)
    )""",
    """CREATE TABLE IF NOT EXISTS skipped (
        cell TEXT NOT NULL REFERENCES cells, problem_id TEXT NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (cell, problem_id)
    ) WITHOUT ROWID""",
    # With which the texts of a cell's answers are packed.
    "CREATE TABLE IF NOT EXISTS dictionaries (cell TEXT PRIMARY KEY REFERENCES cells, content BLOB NOT NULL)",
    """CREATE TABLE IF NOT EXISTS answers (
        problem INTEGER NOT NULL REFERENCES problems, repeat INTEGER NOT NULL, prompt_hash TEXT NOT NULL,
        text BLOB NOT NULL, num_tokens INTEGER NOT NULL, seconds REAL NOT NULL, truncated INTEGER NOT NULL,
        num_thought INTEGER NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (problem, repeat)
    )""",
    """CREATE TABLE IF NOT EXISTS verdicts (
        problem INTEGER NOT NULL, repeat INTEGER NOT NULL, extracted TEXT, state TEXT NOT NULL,
        grader TEXT NOT NULL, why TEXT NOT NULL, score REAL, details TEXT NOT NULL DEFAULT '{}',
        checksum INTEGER NOT NULL,
        PRIMARY KEY (problem, repeat), FOREIGN KEY (problem, repeat) REFERENCES answers
    ) WITHOUT ROWID""",
    f"""CREATE VIEW responses AS SELECT cell, problem_id, repeat, prompt_hash,
        unpacked(text, {DICTIONARY}) AS text, num_tokens, seconds, truncated, num_thought, answers.checksum
        FROM problems JOIN answers ON problem = number""",
    """CREATE VIEW grades AS SELECT cell, problem_id, repeat, extracted, state, grader, why, score, details,
        verdicts.checksum FROM problems JOIN verdicts ON problem = number""",
    """CREATE TABLE IF NOT EXISTS runs (
        key TEXT PRIMARY KEY, spec TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
        checkpoint TEXT NOT NULL DEFAULT '', digest TEXT NOT NULL DEFAULT '', seconds REAL,
        summary TEXT NOT NULL DEFAULT '{}', created REAL NOT NULL, updated REAL NOT NULL
    ) WITHOUT ROWID""",
    # `place` is the machine of a cluster that works on it.
    """CREATE TABLE IF NOT EXISTS progress (
        kind TEXT NOT NULL, key TEXT NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL,
        started REAL NOT NULL, start_done INTEGER NOT NULL, updated REAL NOT NULL, place TEXT NOT NULL DEFAULT '',
        PRIMARY KEY (kind, key)
    ) WITHOUT ROWID""",
    # What a judge said once, whichever cell it was asked for.
    """CREATE TABLE IF NOT EXISTS judgements (
        judge TEXT NOT NULL, question TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL, created REAL NOT NULL,
        checksum INTEGER NOT NULL, PRIMARY KEY (judge, question)
    ) WITHOUT ROWID""",
    # What a cell holds, kept by the store itself: counting four million answers takes a minute. `version` is drawn
    # anew whenever anything of a cell's problems, answers or verdicts changes: equal means unchanged.
    """CREATE TABLE IF NOT EXISTS counts (
        cell TEXT PRIMARY KEY REFERENCES cells, problems INTEGER NOT NULL, responses INTEGER NOT NULL,
        truncated INTEGER NOT NULL, tokens INTEGER NOT NULL, thought INTEGER NOT NULL, graded INTEGER NOT NULL,
        version INTEGER NOT NULL
    ) WITHOUT ROWID""",
    # What a server called the model that answered, where that is not the name it was asked under: an alias may move.
    "CREATE TABLE IF NOT EXISTS answered_as (cell TEXT, model TEXT, PRIMARY KEY (cell, model)) WITHOUT ROWID",
    # What a page was last made from, and its files: a page of what has not changed is left alone.
    "CREATE TABLE IF NOT EXISTS pages (name TEXT PRIMARY KEY, key TEXT NOT NULL, files TEXT NOT NULL) WITHOUT ROWID",
)

TRIGGERS = (
    "CREATE TRIGGER cells_INSERT AFTER INSERT ON cells BEGIN"
    " INSERT INTO counts VALUES (NEW.key, 0, 0, 0, 0, 0, 0, random()); END",
    *(
        f"CREATE TRIGGER {table}_{event} AFTER {event} ON {table} BEGIN"
        f" UPDATE counts SET {change} version = random() WHERE cell = {cell.format(row)}; END"
        for event, row, sign in (("INSERT", "NEW", "+"), ("DELETE", "OLD", "-"))
        for table, cell, change in (
            ("problems", "{}.cell", f"problems = problems {sign} 1,"),
            (
                "answers",
                OF_PROBLEM,
                f"responses = responses {sign} 1, truncated = truncated {sign} {row}.truncated,"
                f" tokens = tokens {sign} {row}.num_tokens, thought = thought {sign} {row}.num_thought,",
            ),
            ("verdicts", OF_PROBLEM, f"graded = graded {sign} 1,"),
            ("skipped", "{}.cell", ""),
        )
    ),
    *(
        f"CREATE TRIGGER {table}_UPDATE AFTER UPDATE ON {table} BEGIN"
        f" UPDATE counts SET {change} version = random() WHERE cell = {cell.format('NEW')}; END"
        for table, cell, change in (
            ("problems", "{}.cell", ""),
            (
                "answers",
                OF_PROBLEM,
                "truncated = truncated - OLD.truncated + NEW.truncated,"
                " tokens = tokens - OLD.num_tokens + NEW.num_tokens,"
                " thought = thought - OLD.num_thought + NEW.num_thought,",
            ),
            ("verdicts", OF_PROBLEM, ""),
            ("skipped", "{}.cell", ""),
        )
    ),
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
    "add_problem": f"""INSERT INTO problems VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        {", ".join(f'"{name}" = excluded."{name}"' for name in PROBLEM)}
        WHERE ({", ".join(f'problems."{name}"' for name in PROBLEM)})
        IS NOT ({", ".join(f'excluded."{name}"' for name in PROBLEM)})""",
    "add_skipped": "INSERT OR REPLACE INTO skipped VALUES (?, ?, ?)",
    "add_dictionary": "INSERT OR IGNORE INTO dictionaries VALUES (?, ?)",
    "add_response": f"""INSERT INTO answers VALUES ({PROBLEM_NUMBER}, ?3, ?4,
        packed(?5, (SELECT content FROM dictionaries WHERE cell = ?1)), ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING""",
    "add_name": "INSERT OR IGNORE INTO answered_as VALUES (?, ?)",
    "drop_response": f"DELETE FROM answers WHERE problem = {PROBLEM_NUMBER} AND repeat = ?3",
    "add_verdict": f"""INSERT INTO verdicts (problem, repeat, state, extracted, grader, why, score, details, checksum)
        VALUES ({PROBLEM_NUMBER}, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO UPDATE SET
        state = excluded.state, extracted = excluded.extracted, grader = excluded.grader, why = excluded.why,
        score = excluded.score, details = excluded.details, checksum = excluded.checksum""",
    "drop_verdict": f"DELETE FROM verdicts WHERE problem = {PROBLEM_NUMBER} AND repeat = ?3",
    "recount": f"INSERT OR REPLACE INTO counts SELECT key, {SCANNED}, random() FROM cells WHERE key = ?",
    "add_judgement": "INSERT OR IGNORE INTO judgements VALUES (?, ?, ?, ?, ?, ?)",
    "drop_judgement": "DELETE FROM judgements WHERE judge = ? AND question = ?",
    "add_run": "INSERT OR IGNORE INTO runs (key, spec, created, updated) VALUES (?, ?, ?, ?)",
    "update_run": """UPDATE runs SET state = ?, reason = ?, checkpoint = ifnull(?, checkpoint),
        digest = ifnull(?, digest), seconds = ifnull(?, seconds), summary = ifnull(?, summary), updated = ?
        WHERE key = ?""",
    "keep_page": "INSERT OR REPLACE INTO pages VALUES (?, ?, ?)",
    "forget_page": "DELETE FROM pages WHERE name = ?",
    "heartbeat": """INSERT INTO progress VALUES (?1, ?2, ?3, ?4, ?5, ?3, ?5, ?6) ON CONFLICT DO UPDATE SET
        started = CASE WHEN ?3 < done OR ?5 NOT BETWEEN updated AND updated + 600 THEN ?5 ELSE started END,
        start_done = CASE WHEN ?3 < done OR ?5 NOT BETWEEN updated AND updated + 600 THEN ?3 ELSE start_done END,
        done = ?3, total = ?4, updated = ?5, place = ?6""",
}
