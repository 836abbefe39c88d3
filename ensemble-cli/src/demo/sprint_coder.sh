#!/bin/sh
# A coder with bad luck: its first agent crashes, the second runs out of context, the third forgets
# something, the fourth repairs it. Each begins in the task's worktree, and knows only its prompt.
# Servers that are away for a moment answer 75: the same is tried again.
set -eu
ensemble() { while "$ENSEMBLE" "$@"; code=$?; [ "$code" -eq 75 ]; do sleep 0.2; done; return "$code"; }
echo x >>"$DEMO/coder.runs"
prompt=$(cat)
ensemble agent verify
case $(wc -l <"$DEMO/coder.runs" | tr -d ' ') in
1)
    echo "coder: something terrible happens"
    kill -9 $$ ;;
2)
    echo 'echo "hello"' >greet.sh
    git add greet.sh
    git commit -q -m "Say hello"
    ensemble agent heartbeat --long "thinking about the other half"
    ensemble agent handoff --summary "it says hello" --next-action "hand it in" --changed greet.sh
    exit 42 ;;
3)
    case $prompt in
    *"hand it in"*) echo "coder: goes on where the last one was" ;;
    *) echo "coder: the notes are missing" >&2; exit 1 ;;
    esac
    ensemble task submit "$ENSEMBLE_TASK_ID" ;;
*)
    case $prompt in
    *"to whom"*) echo "coder: repairs what was rejected" ;;
    *) echo "coder: the reason is missing" >&2; exit 1 ;;
    esac
    echo 'echo "hello, $1"' >greet.sh
    git commit -q -a -m "Greet the named person"
    ensemble task submit "$ENSEMBLE_TASK_ID" ;;
esac
