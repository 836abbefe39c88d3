#!/bin/sh
# An agent of this test: `agent.sh coder`, `code-reviewer` or `planner`, started by `ensemble agent supervise`.
# ENSEMBLE is the program, JOURNAL a file for what happens, LOCKS a directory. STAMPED=1 puts the seconds since
# boot before each line.
# What it does follows from the number in its task's name; main.rs has the same rules.

task=$ENSEMBLE_TASK_ID epoch=$ENSEMBLE_TASK_EPOCH number=${ENSEMBLE_TASK_ID#t}

say() {
    [ -z "${STAMPED-}" ] || read -r up _ < /proc/uptime
    echo "${STAMPED:+$up }$*" >> "$JOURNAL"
}

# Runs a verb wherever this is by now, and ends with what came of it. Nothing of it holds the lock.
finish() {
    exec 9>&-
    while :; do
        told=$(cd / && "$ENSEMBLE" "$@" 2>&1 > /dev/null)
        code=$?
        [ $code = 0 ] && say "done $task $epoch" && exit 0
        # Busy: others had the blackboard all the time.
        [ $code = 75 ] || break
    done
    say "refused $task $epoch $(echo "$told" | head -n 1)"
    exit 3
}

# Whether a task says this of itself; a blackboard that is busy is asked again.
field() {
    while :; do
        shown=$("$ENSEMBLE" task show "$task" --json 2> /dev/null 9>&-)
        [ $? = 75 ] || break
    done
    echo "$shown" | grep -q "\"$1\":$2"
}

# Two coders have failed, by being killed often enough: that is no fault of the task.
if [ "$1" = planner ]; then
    why="two coders have failed"
    "$ENSEMBLE" task list --json > "$LOCKS/planner.tasks" || exit 1
    grep -v '"status":"BLOCKED"' "$LOCKS/planner.tasks" | grep '"failed_by":\["[^"]*","' |
        sed 's/^{"id":"\([^"]*\)".*/\1/' | while read -r id; do
        "$ENSEMBLE" task block "$id" --reason "$why" --question "who killed them?" && say "cut anew $id"
    done
    # Those, too, of a planner that came no further.
    "$ENSEMBLE" task list --json > "$LOCKS/planner.tasks" || exit 1
    grep "\"blocked_reason\":\"$why\"" "$LOCKS/planner.tasks" |
        sed 's/^{"id":"\([^"]*\)".*/\1/' | while read -r id; do
        "$ENSEMBLE" task unblock "$id"
    done
    exit 0
fi

say "begin $task $epoch $$ $PPID"
# Another process in this worktree holds the lock; record its number, process and parent.
lock=$LOCKS/$task.$1
exec 9<> "$lock"
if flock -n 9; then echo "$epoch $$ $PPID" > "$lock"; else say "beside $task $epoch $(cat "$lock")"; fi

if [ "$1" = code-reviewer ]; then
    if [ $((number % 5)) = 0 ] && ! field review_cycles_total '[1-9]'; then
        finish task verdict "$task" --reject "once more"
    fi
    finish task verdict "$task" --approve
fi

[ $((number % 13)) = 12 ] && finish task block "$task" --reason "it cannot be done" --question "what else?"
[ $((number % 17)) = 15 ] && exit 1

git merge --abort 2> /dev/null
fix=
if field integration_fix true; then
    fix=yes
    git merge --quiet --no-edit -X ours integration 2> /dev/null
fi
for part in 0 1 2; do
    # Some take their time, so that a stopped agent resumes while another one is at work.
    [ $((number % 3)) = 1 ] && for _ in 1 2 3 4 5 6; do sleep 0.3; done
    echo "$task part $part" >> "$task"
    # Several write to one place: not all of them can be merged as they are.
    [ $((number % 4)) = 0 ] && [ $part = 1 ] && [ -z "$fix" ] && echo "$task" > shared
    git add --all 2> /dev/null
    git commit --quiet --allow-empty -m "$task part $part" 2> /dev/null
    if [ $((number % 7)) = 3 ] && [ $part = 1 ] && [ ! -e "$LOCKS/$task.handed" ]; then
        : > "$LOCKS/$task.handed"
        "$ENSEMBLE" agent handoff --summary half --next-action "the rest" > /dev/null 2>&1 9>&-
        exit 42
    fi
done
# Even if there is no worktree any more: that is for the blackboard to refuse.
finish task submit "$task"
