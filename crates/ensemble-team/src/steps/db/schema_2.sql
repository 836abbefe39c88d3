-- From version 1 to 2: fix steps, and steps that need an approved plan.
DROP INDEX task_steps_by_position;
ALTER TABLE task_steps DROP COLUMN life;
ALTER TABLE task_steps ADD COLUMN fixes INTEGER;            -- the failed step that this one fixes
ALTER TABLE task_steps ADD COLUMN fixes_epoch INTEGER;      -- and the hand-out in which it failed
ALTER TABLE task_steps ADD COLUMN waits_for_fix INTEGER NOT NULL DEFAULT 0
  CHECK (waits_for_fix IN (0, 1));                          -- a step with that `fixes` comes first
ALTER TABLE task_steps ADD COLUMN fix_files TEXT NOT NULL DEFAULT '[]'; -- files that a fix may change
ALTER TABLE task_steps ADD COLUMN needs_plan INTEGER NOT NULL DEFAULT 0
  CHECK (needs_plan IN (0, 1));                             -- its plan must be approved first
-- Meaning of the status for the queue. It is generated, so it cannot disagree with the status.
ALTER TABLE task_steps ADD COLUMN life TEXT GENERATED ALWAYS AS (CASE
    WHEN status = 'FAILED' AND waits_for_fix = 1 THEN 'waits'
    WHEN status = 'PENDING' OR (status = 'FAILED' AND fix_due = 1) THEN 'open'
    WHEN status = 'IN_PROGRESS' THEN 'held'
    WHEN status = 'COMPLETED' THEN 'done'
    ELSE 'stuck' END) VIRTUAL;

CREATE UNIQUE INDEX task_steps_by_position ON task_steps (task_id, life, position);
CREATE INDEX task_steps_by_fixes ON task_steps (task_id, fixes) WHERE fixes IS NOT NULL;

-- Version 1 handed a failed step itself to its fixer. It is taken back, and its attempt does not
-- count. The program then inserts its fix step.
CREATE TEMP TABLE held_by_fixers AS
  SELECT task_id, step_index, epoch FROM task_steps
  WHERE status = 'IN_PROGRESS' AND holder = fix_by AND fix_by <> agent
    AND attempt > 1 AND last_error IS NOT NULL;
UPDATE step_runs SET outcome = 'taken_away', ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
  WHERE outcome IS NULL
    AND (task_id, step_index, epoch) IN (SELECT task_id, step_index, epoch FROM held_by_fixers);
DELETE FROM file_locks
  WHERE (task_id, step_index) IN (SELECT task_id, step_index FROM held_by_fixers);
UPDATE task_steps SET status = 'FAILED', fix_due = 1, holder = NULL, attempt = attempt - 1
  WHERE (task_id, step_index) IN (SELECT task_id, step_index FROM held_by_fixers);
DROP TABLE held_by_fixers;
