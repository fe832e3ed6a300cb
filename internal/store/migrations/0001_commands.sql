-- A run or a task. What is searched is a column; the rest of what lists show is in facts.
-- Times are in microseconds since 1970, 0 for none.
CREATE TABLE commands (
    seq          INTEGER PRIMARY KEY, -- order of admission
    id           TEXT    NOT NULL UNIQUE,
    owner        TEXT    NOT NULL,    -- '' for nobody
    kind         TEXT    NOT NULL,
    session      TEXT    NOT NULL,    -- '' for none
    status       TEXT    NOT NULL,
    settled      INTEGER NOT NULL CHECK (settled IN (0, 1)), -- the status is terminal
    finished_at  INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    read_stdout  INTEGER NOT NULL,    -- where the next consuming read begins
    read_stderr  INTEGER NOT NULL,
    reported     INTEGER NOT NULL CHECK (reported IN (0, 1)),
    yield_stdout INTEGER,             -- how long the streams were when a run became a task; NULL: it did not
    yield_stderr INTEGER,
    facts        TEXT    NOT NULL     -- JSON
) STRICT;

-- Lists, newest first. The status is there so that a filter by it reads no row that it drops.
CREATE INDEX commands_listed ON commands (owner, kind, seq, status) WHERE settled = 1;
CREATE INDEX commands_of_session ON commands (owner, kind, session, seq, status) WHERE settled = 1 AND session <> '';

-- Which go first, of one owner and of all.
CREATE INDEX commands_of_owner_by_age ON commands (owner, finished_at, seq) WHERE settled = 1;
CREATE INDEX commands_by_age ON commands (finished_at, seq) WHERE settled = 1;

-- What an earlier life left unfinished.
CREATE INDEX commands_unsettled ON commands (seq) WHERE settled = 0;

-- What the terminal records of each owner add up to. To sum them up each time would cost more the more
-- there are, and at the bounds of retention it is asked for with every command that ends.
CREATE TABLE usage (
    owner   TEXT    NOT NULL PRIMARY KEY,
    records INTEGER NOT NULL,
    bytes   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER usage_of_inserted AFTER INSERT ON commands WHEN new.settled = 1 BEGIN
    INSERT INTO usage (owner, records, bytes) VALUES (new.owner, 1, new.bytes)
    ON CONFLICT (owner) DO UPDATE SET records = records + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER usage_of_settled AFTER UPDATE OF settled ON commands WHEN new.settled = 1 AND old.settled = 0 BEGIN
    INSERT INTO usage (owner, records, bytes) VALUES (new.owner, 1, new.bytes)
    ON CONFLICT (owner) DO UPDATE SET records = records + 1, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER usage_of_deleted AFTER DELETE ON commands WHEN old.settled = 1 BEGIN
    UPDATE usage SET records = records - 1, bytes = bytes - old.bytes WHERE owner = old.owner;
    DELETE FROM usage WHERE owner = old.owner AND records = 0;
END;

-- What only the look-up of one record shows.
CREATE TABLE bodies (
    seq    INTEGER PRIMARY KEY REFERENCES commands (seq) ON DELETE CASCADE,
    spec   TEXT NOT NULL, -- JSON, with the whole command
    stdout BLOB,          -- the collected output; NULL: none
    stderr BLOB
) STRICT;

CREATE TABLE idempotency_keys (
    owner    TEXT    NOT NULL,
    route    TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    body     BLOB    NOT NULL CHECK (length(body) = 32), -- SHA-256 of the request
    id       TEXT    NOT NULL REFERENCES commands (id) ON DELETE CASCADE,
    taken_at INTEGER NOT NULL,
    PRIMARY KEY (owner, route, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_of_command ON idempotency_keys (id);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (taken_at);

-- What a write that is only tried puts in and takes out again, to see whether the disk has room.
CREATE TABLE probe (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    filler BLOB NOT NULL
) STRICT;
