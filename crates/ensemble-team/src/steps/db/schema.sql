-- A queue: the steps of one subtask.
CREATE TABLE task_queues (
  task_id        TEXT PRIMARY KEY,
  number         INTEGER NOT NULL UNIQUE,          -- the order in which queues were added
  title          TEXT NOT NULL DEFAULT '',
  orchestrator   TEXT,                             -- the mailbox that is told
  parallel       INTEGER NOT NULL DEFAULT 1 CHECK (parallel >= 1),
  pauses         TEXT NOT NULL DEFAULT 'queue' CHECK (pauses IN ('queue', 'step')),
  policy         TEXT NOT NULL DEFAULT 'none' CHECK (policy IN ('none', 'tdd')),
  attempts_max   INTEGER NOT NULL CHECK (attempts_max >= 1),
  lease_seconds  INTEGER NOT NULL CHECK (lease_seconds >= 1),
  constraints    TEXT NOT NULL DEFAULT '[]',       -- a JSON list of texts
  template       TEXT,                             -- of the prompt, if not the usual one
  plan_sha256    TEXT NOT NULL,
  context_step   INTEGER,                          -- who has said something for the next step
  context_epoch  INTEGER,
  created_at     TEXT NOT NULL
) STRICT;

CREATE TABLE task_steps (
  task_id        TEXT NOT NULL REFERENCES task_queues ON DELETE CASCADE,
  step_index     INTEGER NOT NULL CHECK (step_index >= 0),
  position       INTEGER NOT NULL,                 -- the order in the queue; parts go to its head
  agent          TEXT NOT NULL,
  fix_by         TEXT,                             -- who fixes it, if not its agent
  goal           TEXT NOT NULL,
  instructions   TEXT NOT NULL DEFAULT '[]',
  constraints    TEXT NOT NULL DEFAULT '[]',
  phase          INTEGER CHECK (phase BETWEEN 0 AND 3), -- red, green, refactor, review
  cycle          TEXT NOT NULL DEFAULT '',
  status         TEXT NOT NULL DEFAULT 'PENDING'
                 CHECK (status IN ('PENDING', 'IN_PROGRESS', 'COMPLETED', 'BLOCKED', 'FAILED')),
  resolution     TEXT CHECK (resolution IN ('success', 'skipped', 'split')),
  fix_due        INTEGER NOT NULL DEFAULT 0 CHECK (fix_due IN (0, 1)),
  fixes          INTEGER,                          -- the failed step that this one fixes
  fixes_epoch    INTEGER,                          -- and the hand-out in which it failed
  waits_for_fix  INTEGER NOT NULL DEFAULT 0        -- a step with that `fixes` comes first
                 CHECK (waits_for_fix IN (0, 1)),
  fix_files      TEXT NOT NULL DEFAULT '[]',       -- files that a fix may change
  needs_plan     INTEGER NOT NULL DEFAULT 0        -- its plan must be approved first
                 CHECK (needs_plan IN (0, 1)),
  attempt        INTEGER NOT NULL DEFAULT 0,
  epoch          INTEGER NOT NULL DEFAULT 0,
  beat           INTEGER NOT NULL DEFAULT 0,       -- the lease's sequence number
  holder         TEXT,
  last_error     TEXT,
  blockers       TEXT NOT NULL DEFAULT '[]',
  summary        TEXT,
  artifacts      TEXT NOT NULL DEFAULT '[]',
  parent_index   INTEGER,                          -- the step this is a part of
  note           TEXT,                             -- why it was skipped, unblocked, retried
  created_at     TEXT NOT NULL,
  updated_at     TEXT NOT NULL,
  -- Meaning of the status for the queue. It is generated, so it cannot disagree with the status.
  life           TEXT GENERATED ALWAYS AS (CASE
                   WHEN status = 'FAILED' AND waits_for_fix = 1 THEN 'waits'
                   WHEN status = 'PENDING' OR (status = 'FAILED' AND fix_due = 1) THEN 'open'
                   WHEN status = 'IN_PROGRESS' THEN 'held'
                   WHEN status = 'COMPLETED' THEN 'done'
                   ELSE 'stuck' END) VIRTUAL,
  PRIMARY KEY (task_id, step_index),
  CHECK ((status = 'IN_PROGRESS') = (holder IS NOT NULL)),
  CHECK ((status = 'COMPLETED') = (resolution IS NOT NULL)),
  CHECK (status <> 'BLOCKED' OR blockers <> '[]'),
  CHECK (status <> 'FAILED' OR last_error IS NOT NULL)
) STRICT;

CREATE UNIQUE INDEX task_steps_by_position ON task_steps (task_id, life, position);
CREATE INDEX task_steps_by_fixes ON task_steps (task_id, fixes) WHERE fixes IS NOT NULL;
CREATE INDEX task_steps_by_holder ON task_steps (holder) WHERE holder IS NOT NULL;
CREATE INDEX task_steps_by_cycle ON task_steps (task_id, cycle, phase) WHERE phase IS NOT NULL;

-- Files of a task (step_index -1) or of one step: those that a prompt shows, and those that a
-- worker changes.
CREATE TABLE task_resources (
  task_id        TEXT NOT NULL REFERENCES task_queues ON DELETE CASCADE,
  step_index     INTEGER NOT NULL DEFAULT -1,
  number         INTEGER NOT NULL,
  path           TEXT NOT NULL,
  access         TEXT NOT NULL CHECK (access IN ('read', 'write')),
  PRIMARY KEY (task_id, step_index, number)
) STRICT, WITHOUT ROWID;

-- Locks on files, with the step that holds each.
CREATE TABLE file_locks (
  path           TEXT PRIMARY KEY,
  task_id        TEXT NOT NULL,
  step_index     INTEGER NOT NULL,
  epoch          INTEGER NOT NULL,
  holder         TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX file_locks_by_step ON file_locks (task_id, step_index);

-- Runs of steps: one row for each hand-out, with its outcome.
CREATE TABLE step_runs (
  task_id        TEXT NOT NULL,
  step_index     INTEGER NOT NULL,
  epoch          INTEGER NOT NULL,
  attempt        INTEGER NOT NULL,
  agent          TEXT NOT NULL,
  taken_at       TEXT NOT NULL,
  ended_at       TEXT,
  outcome        TEXT CHECK (outcome IN ('success', 'failure', 'blocked', 'lease_ended', 'taken_away')),
  summary        TEXT,
  artifacts      TEXT NOT NULL DEFAULT '[]',
  blockers       TEXT NOT NULL DEFAULT '[]',
  context_for_next_step TEXT,
  report_sha256  TEXT,                             -- of the whole report
  prompt_message TEXT,                             -- the message that has carried the prompt
  prompt_sha256  TEXT,
  shown          TEXT,                             -- files as the prompt has shown them, with digests
  PRIMARY KEY (task_id, step_index, epoch),
  FOREIGN KEY (task_id, step_index) REFERENCES task_steps ON DELETE CASCADE,
  CHECK ((outcome IS NULL) = (ended_at IS NULL))
) STRICT;

-- Notices to the orchestrator, with a mark for those that were posted.
CREATE TABLE step_notices (
  number         INTEGER PRIMARY KEY,
  id             TEXT NOT NULL UNIQUE,
  mailbox        TEXT NOT NULL,
  type           TEXT NOT NULL,
  task_id        TEXT NOT NULL,
  step_index     INTEGER,
  body           TEXT NOT NULL,
  created_at     TEXT NOT NULL,
  posted         INTEGER NOT NULL DEFAULT 0 CHECK (posted IN (0, 1))
) STRICT;
CREATE INDEX step_notices_to_post ON step_notices (number) WHERE posted = 0;

-- Observations of leases during this boot.
CREATE TABLE lease_observations (
  boot_id        TEXT PRIMARY KEY,
  snapshot       TEXT NOT NULL
) STRICT, WITHOUT ROWID;
