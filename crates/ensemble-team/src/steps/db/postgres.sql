-- The tables of schema.sql for PostgreSQL, in the schema of a team. Numbers and flags are
-- BIGINT, so that the same statements run in both.

-- A queue: the steps of one subtask.
CREATE TABLE task_queues (
  task_id        TEXT PRIMARY KEY,
  number         BIGINT  NOT NULL UNIQUE,          -- the order in which queues were added
  title          TEXT NOT NULL DEFAULT '',
  orchestrator   TEXT,                             -- the mailbox that is told
  parallel       BIGINT  NOT NULL DEFAULT 1 CHECK (parallel >= 1),
  pauses         TEXT NOT NULL DEFAULT 'queue' CHECK (pauses IN ('queue', 'step')),
  policy         TEXT NOT NULL DEFAULT 'none' CHECK (policy IN ('none', 'tdd')),
  attempts_max   BIGINT  NOT NULL CHECK (attempts_max >= 1),
  lease_seconds  BIGINT  NOT NULL CHECK (lease_seconds >= 1),
  constraints    TEXT NOT NULL DEFAULT '[]',       -- a JSON list of texts
  template       TEXT,                             -- of the prompt, if not the usual one
  plan_sha256    TEXT NOT NULL,
  context_step   BIGINT ,                          -- who has said something for the next step
  context_epoch  BIGINT ,
  created_at     TEXT NOT NULL
);

CREATE TABLE task_steps (
  task_id        TEXT NOT NULL REFERENCES task_queues ON DELETE CASCADE,
  step_index     BIGINT  NOT NULL CHECK (step_index >= 0),
  position       BIGINT  NOT NULL,                 -- the order in the queue; parts go to its head
  agent          TEXT NOT NULL,
  fix_by         TEXT,                             -- who fixes it, if not its agent
  goal           TEXT NOT NULL,
  instructions   TEXT NOT NULL DEFAULT '[]',
  constraints    TEXT NOT NULL DEFAULT '[]',
  phase          BIGINT  CHECK (phase BETWEEN 0 AND 3), -- red, green, refactor, review
  cycle          TEXT NOT NULL DEFAULT '',
  status         TEXT NOT NULL DEFAULT 'PENDING'
                 CHECK (status IN ('PENDING', 'IN_PROGRESS', 'COMPLETED', 'BLOCKED', 'FAILED')),
  resolution     TEXT CHECK (resolution IN ('success', 'skipped', 'split')),
  fix_due        BIGINT  NOT NULL DEFAULT 0 CHECK (fix_due IN (0, 1)),
  attempt        BIGINT  NOT NULL DEFAULT 0,
  epoch          BIGINT  NOT NULL DEFAULT 0,
  beat           BIGINT  NOT NULL DEFAULT 0,       -- the lease's sequence number
  holder         TEXT,
  last_error     TEXT,
  blockers       TEXT NOT NULL DEFAULT '[]',
  summary        TEXT,
  artifacts      TEXT NOT NULL DEFAULT '[]',
  parent_index   BIGINT ,                          -- the step this is a part of
  note           TEXT,                             -- why it was skipped, unblocked, retried
  created_at     TEXT NOT NULL,
  updated_at     TEXT NOT NULL,
  fixes          BIGINT ,                          -- the failed step that this one fixes
  fixes_epoch    BIGINT ,                          -- and the hand-out in which it failed
  waits_for_fix  BIGINT  NOT NULL DEFAULT 0 CHECK (waits_for_fix IN (0, 1)),
  fix_files      TEXT NOT NULL DEFAULT '[]',       -- files that a fix may change
  needs_plan     BIGINT  NOT NULL DEFAULT 0 CHECK (needs_plan IN (0, 1)),
  -- Meaning of the status for the queue. It is generated, so it cannot disagree with the status.
  life           TEXT GENERATED ALWAYS AS (CASE
                   WHEN status = 'FAILED' AND waits_for_fix = 1 THEN 'waits'
                   WHEN status = 'PENDING' OR (status = 'FAILED' AND fix_due = 1) THEN 'open'
                   WHEN status = 'IN_PROGRESS' THEN 'held'
                   WHEN status = 'COMPLETED' THEN 'done'
                   ELSE 'stuck' END) STORED,
  PRIMARY KEY (task_id, step_index),
  CHECK ((status = 'IN_PROGRESS') = (holder IS NOT NULL)),
  CHECK ((status = 'COMPLETED') = (resolution IS NOT NULL)),
  CHECK (status <> 'BLOCKED' OR blockers <> '[]'),
  CHECK (status <> 'FAILED' OR last_error IS NOT NULL)
);

CREATE UNIQUE INDEX task_steps_by_position ON task_steps (task_id, life, position);
CREATE INDEX task_steps_by_fixes ON task_steps (task_id, fixes) WHERE fixes IS NOT NULL;
CREATE INDEX task_steps_by_holder ON task_steps (holder) WHERE holder IS NOT NULL;
CREATE INDEX task_steps_by_cycle ON task_steps (task_id, cycle, phase) WHERE phase IS NOT NULL;

-- Files of a task (step_index -1) or of one step: those that a prompt shows, and those that a
-- worker changes.
CREATE TABLE task_resources (
  task_id        TEXT NOT NULL REFERENCES task_queues ON DELETE CASCADE,
  step_index     BIGINT  NOT NULL DEFAULT -1,
  number         BIGINT  NOT NULL,
  path           TEXT NOT NULL,
  access         TEXT NOT NULL CHECK (access IN ('read', 'write')),
  PRIMARY KEY (task_id, step_index, number)
);

-- Locks on files, with the step that holds each.
CREATE TABLE file_locks (
  path           TEXT PRIMARY KEY,
  task_id        TEXT NOT NULL,
  step_index     BIGINT  NOT NULL,
  epoch          BIGINT  NOT NULL,
  holder         TEXT NOT NULL
);
CREATE INDEX file_locks_by_step ON file_locks (task_id, step_index);

-- Runs of steps: one row for each hand-out, with its outcome.
CREATE TABLE step_runs (
  task_id        TEXT NOT NULL,
  step_index     BIGINT  NOT NULL,
  epoch          BIGINT  NOT NULL,
  attempt        BIGINT  NOT NULL,
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
);

-- Notices to the orchestrator, with a mark for those that were posted.
CREATE TABLE step_notices (
  number         BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  id             TEXT NOT NULL UNIQUE,
  mailbox        TEXT NOT NULL,
  type           TEXT NOT NULL,
  task_id        TEXT NOT NULL,
  step_index     BIGINT ,
  body           TEXT NOT NULL,
  created_at     TEXT NOT NULL,
  posted         BIGINT  NOT NULL DEFAULT 0 CHECK (posted IN (0, 1))
);
CREATE INDEX step_notices_to_post ON step_notices (number) WHERE posted = 0;

-- Observations of leases, by the boot of a host. Those that no host has renewed for long are removed.
CREATE TABLE lease_observations (
  boot_id        TEXT PRIMARY KEY,
  snapshot       TEXT NOT NULL,
  stored_at      TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- The version of these tables.
CREATE TABLE step_schema (
  version        BIGINT  NOT NULL
);
