#!/bin/sh
# Dispatch: turns an instruction into task files, gathers the reports, writes the summary once.
set -u
put() { # put FILE: stores standard input whole, by a rename
    cat >"$QUEUE/tmp/$1" && mv "$QUEUE/tmp/$1" "$2"
}

assign() { # assign MESSAGE: one task file for each task of the instruction
    worker=0 total=0
    sed -n 's/^ *- {id: \([^,]*\), .*files: "\(.*\)"}$/\1 \2/p' "$1" >"$DEMO/tasks"
    while read -r name pattern; do
        worker=$((worker % 2 + 1)) total=$((total + 1))
        until [ ! -e "$QUEUE/tasks/worker-$worker-task.yaml" ]; do
            mv "$QUEUE/tasks/worker-$worker-task.yaml" "$DEMO/handed-out-$worker-$total"
        done
        printf 'id: %s\ninstruction: count the lines of the files that match\nfiles: "%s"\n...\n' \
            "$name" "$pattern" | put "$name.yaml" "$QUEUE/tasks/worker-$worker-task.yaml"
        echo "dispatch: $name for worker-$worker"
        # The next file of the same worker has the same name: wait until this one was routed.
        until grep -q "\"task_id\":\"$name\"" "$QUEUE"/../.ensemble/logs/*.ndjson; do sleep 0.02; done
    done <"$DEMO/tasks"
    echo "$total" >"$DEMO/total"
}

summarize() { # once all reports are there: what each of them has counted
    done=$(find "$QUEUE/reports" -name '*-completed.yaml' | wc -l)
    echo "dispatch: $done of $(cat "$DEMO/total") reports are in"
    [ "$done" -eq "$(cat "$DEMO/total")" ] && [ ! -e "$QUEUE/reports/completion-summary.yaml" ] || return 0
    lines=$(sed -n 's/^lines: //p' "$QUEUE"/reports/*-completed.yaml | awk '{ n += $1 } END { print n }')
    printf 'status: success\ntotal_tasks: %s\ncompleted_tasks: %s\nsummary: "%s lines counted by 2 workers"\n...\n' \
        "$done" "$done" "$lines" | put summary.yaml "$QUEUE/reports/completion-summary.yaml"
}

leave() { # leave MESSAGE: agrees to the shutdown that this message asks for
    "$ENSEMBLE" respond --as dispatch "${1%.*}" --approve
    "$ENSEMBLE" settle --as dispatch "$1" >/dev/null
    exit 0
}

while read -r line; do
    echo "dispatch: woken by: $line"
    while mail=$("$ENSEMBLE" recv --as dispatch --json 2>/dev/null); do
        id=$(printf '%s\n' "$mail" | sed 's/^{"id":"\([^"]*\)".*/\1/')
        case $mail in
        *'"type":"dispatch.instruction"'*) assign "$QUEUE"/mailbox/dispatch/cur/"$id"@*.yaml ;;
        *'"type":"shutdown_request"'*) leave "$id" ;;
        *) summarize ;;
        esac
        "$ENSEMBLE" settle --as dispatch "$id" >/dev/null
    done
done
