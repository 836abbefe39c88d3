#!/bin/sh
# A worker: sleeps until a line is typed into its pane, then works off its mailbox.
set -u
name=$1

field() { sed -n "s/^  $1: //p" "$2" | tr -d '"'; }

while read -r line; do
    case $line in "AGENT_TEAM_PING $name "*) # Dispatch asks first
        "$ENSEMBLE" agent pong --as "$name" "$name" "${line##* }" >/dev/null
        continue ;;
    esac
    echo "$name: woken by: $line"
    while mail=$("$ENSEMBLE" recv --as "$name" --json 2>/dev/null); do # this is the ack
        id=$(printf '%s\n' "$mail" | sed 's/^{"id":"\([^"]*\)".*/\1/')
        case $mail in
        *'"type":"task"'*) ;;
        *'"type":"shutdown_request"'*) # the id is that of the request, a dot and a word
            "$ENSEMBLE" request answer --as "$name" "${id%.*}" --approve
            "$ENSEMBLE" settle --as "$name" "$id" >/dev/null
            exit 0 ;;
        *)
            echo "$name: told: $id"
            "$ENSEMBLE" settle --as "$name" "$id" >/dev/null
            continue ;;
        esac
        message=$(echo "$QUEUE"/mailbox/"$name"/cur/"$id"@*.yaml)
        task=$(field id "$message") pattern=$(sed -n 's/^  *- *//p' "$message" | tr -d '"')
        files=$(find "$WORK" -type f -name "$pattern" -not -path '*/target/*' -not -path '*/.git/*')
        lines=$(printf '%s\n' "$files" | tr '\n' '\0' | xargs -0 cat 2>/dev/null | wc -l)
        count=$(printf '%s' "$files" | grep -c '')
        printf '%s lines in:\n%s\n' "$lines" "$files" >"$DEMO/$task.txt"
        echo "$name: $task: $lines lines in files named $pattern"
        # A report says who, how many, what share and where: `ensemble admin lint` holds it to that.
        said="$lines lines in $count of $count files (100%), listed in $task.txt:1"
        printf 'task_id: %s\nworker_id: %s\nstatus: success\nsummary: "%s"\nlines: %s\n...\n' \
            "$task" "$name" "$said" "$lines" >"$QUEUE/tmp/$task-completed.yaml"
        mv "$QUEUE/tmp/$task-completed.yaml" "$QUEUE/reports/$task-completed.yaml"
        "$ENSEMBLE" settle --as "$name" "$id" >/dev/null
    done
done
