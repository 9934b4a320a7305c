"""The tables inside a store file (`schema.sql`), what keeps their counts, and the statements that write them.

Answers and verdicts name their problem by a number, and the text of an answer is packed: `responses` and `grades` are
views of them with the cell, the problem's name and the text itself. Whoever changes the tables raises `VERSION`: a
store of another is refused, and from the first release on `connection` brings older ones up to it.
"""

from __future__ import annotations

from pathlib import Path

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


def tables() -> list[str]:
    """The statements that make the tables."""
    return Path(__file__).with_name("schema.sql").read_text(encoding="utf-8").split(";\n")


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
