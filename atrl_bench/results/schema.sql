-- The tables of a store. Those of long texts keep their rowid: their key is then a small index of its own, which
-- counting reads instead of the texts. The others are their own index.

CREATE TABLE IF NOT EXISTS cells (
    key TEXT PRIMARY KEY, spec TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
    expected INTEGER, created REAL NOT NULL, updated REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS problems (
    number INTEGER PRIMARY KEY,
    cell TEXT NOT NULL REFERENCES cells, problem_id TEXT NOT NULL, position INTEGER NOT NULL,
    "group" TEXT NOT NULL, question TEXT NOT NULL, gold TEXT NOT NULL,
    choices TEXT NOT NULL, meta TEXT NOT NULL, checksum INTEGER NOT NULL,
    UNIQUE (cell, problem_id)
);

CREATE TABLE IF NOT EXISTS skipped (
    cell TEXT NOT NULL REFERENCES cells, problem_id TEXT NOT NULL, reason TEXT NOT NULL,
    PRIMARY KEY (cell, problem_id)
) WITHOUT ROWID;

-- With which the texts of a cell's answers are packed.
CREATE TABLE IF NOT EXISTS dictionaries (cell TEXT PRIMARY KEY REFERENCES cells, content BLOB NOT NULL);

CREATE TABLE IF NOT EXISTS answers (
    problem INTEGER NOT NULL REFERENCES problems, repeat INTEGER NOT NULL, prompt_hash TEXT NOT NULL,
    text BLOB NOT NULL, num_tokens INTEGER NOT NULL, seconds REAL NOT NULL, truncated INTEGER NOT NULL,
    num_thought INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (problem, repeat)
);

CREATE TABLE IF NOT EXISTS verdicts (
    problem INTEGER NOT NULL, repeat INTEGER NOT NULL, extracted TEXT, state TEXT NOT NULL,
    grader TEXT NOT NULL, why TEXT NOT NULL, score REAL, details TEXT NOT NULL DEFAULT '{}',
    checksum INTEGER NOT NULL,
    PRIMARY KEY (problem, repeat), FOREIGN KEY (problem, repeat) REFERENCES answers
) WITHOUT ROWID;

CREATE VIEW responses AS SELECT cell, problem_id, repeat, prompt_hash,
    unpacked(text, (SELECT content FROM dictionaries WHERE dictionaries.cell = problems.cell)) AS text,
    num_tokens, seconds, truncated, num_thought, answers.checksum
    FROM problems JOIN answers ON problem = number;

CREATE VIEW grades AS SELECT cell, problem_id, repeat, extracted, state, grader, why, score, details,
    verdicts.checksum FROM problems JOIN verdicts ON problem = number;

CREATE TABLE IF NOT EXISTS runs (
    key TEXT PRIMARY KEY, spec TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
    checkpoint TEXT NOT NULL DEFAULT '', digest TEXT NOT NULL DEFAULT '', seconds REAL,
    summary TEXT NOT NULL DEFAULT '{}', created REAL NOT NULL, updated REAL NOT NULL
) WITHOUT ROWID;

-- `place` is the machine of a cluster that works on it.
CREATE TABLE IF NOT EXISTS progress (
    kind TEXT NOT NULL, key TEXT NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL,
    started REAL NOT NULL, start_done INTEGER NOT NULL, updated REAL NOT NULL, place TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;

-- What a judge said once, whichever cell it was asked for.
CREATE TABLE IF NOT EXISTS judgements (
    judge TEXT NOT NULL, question TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL, created REAL NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (judge, question)
) WITHOUT ROWID;

-- What a cell holds, kept by the store itself: counting four million answers takes a minute. `version` is drawn
-- anew whenever anything of a cell's problems, answers or verdicts changes: equal means unchanged.
CREATE TABLE IF NOT EXISTS counts (
    cell TEXT PRIMARY KEY REFERENCES cells, problems INTEGER NOT NULL, responses INTEGER NOT NULL,
    truncated INTEGER NOT NULL, tokens INTEGER NOT NULL, thought INTEGER NOT NULL, graded INTEGER NOT NULL,
    version INTEGER NOT NULL
) WITHOUT ROWID;

-- What a server called the model that answered, where that is not the name it was asked under: an alias may move.
CREATE TABLE IF NOT EXISTS answered_as (cell TEXT, model TEXT, PRIMARY KEY (cell, model)) WITHOUT ROWID;

-- What a page was last made from, and its files: a page of what has not changed is left alone.
CREATE TABLE IF NOT EXISTS pages (name TEXT PRIMARY KEY, key TEXT NOT NULL, files TEXT NOT NULL) WITHOUT ROWID;
