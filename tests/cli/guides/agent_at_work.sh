#!/bin/sh
# Plays an agent's program that works: it begins at once, and ends its work when the file `HOME/go/WORK` is there.
# `claude -p PROMPT` and `codex exec -` work on the blackboard, `claude` on the mail that it is told of.
may_end() { until [ -e "$HOME/go/$1" ]; do sleep 0.1; done; }
draw() { printf '\033[2J\033[H%s\n────────\n❯ \0337\n────────\n  ? for shortcuts%s\0338' "$1" "$2"; }
# Flags of ours, for hooks and tools, may stand before.
case " $* " in
*" -p "* | *" exec "*)
    [ -n "${ENSEMBLE_TASK_ID-}" ] || exit 0 # a planner: all is planned
    case $ENSEMBLE_AGENT_ID in
    coder-*)
        may_end coder
        echo work >>done.txt
        git add done.txt && git commit -q -m 'Work'
        exec ensemble task submit "$ENSEMBLE_TASK_ID" ;;
    esac
    may_end reviewer
    exec ensemble task verdict "$ENSEMBLE_TASK_ID" --approve ;;
esac
while :; do
    draw '' ''
    IFS= read -r line || exit 0
    case $line in *"ensemble recv"* | *"mail for"*) ;; *) continue ;; esac
    while message=$(ensemble recv --json); do
        draw '✶ Tomfoolering… (3s)' ' · esc to interrupt'
        field() { printf '%s\n' "$message" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
        task=$(field task_id) id=$(field id) me=$(field to)
        case $(field type) in
        shutdown_request) ensemble request answer "$(field correlation_id)" --approve && exit 0 ;;
        step)
            step=${id#*.} step=${step%.*}
            may_end "step-$step"
            how='"status": "success"'
            [ ! -e "$HOME/go/block-$step" ] || how='"status": "blocked", "blockers": ["no key"]'
            echo "{\"task_id\": \"$task\", \"step_index\": $step, \"agent\": \"$me\", $how}" |
                ensemble step submit -f - ;;
        task)
            may_end "$task"
            ensemble report "$task" --status success --summary "$me did 1 of 1 (100%), see src/main.rs:1" ;;
        *) ensemble settle "$id" ;;
        esac
    done
done
