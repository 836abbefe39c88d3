#!/bin/sh
# Dispatch: `ensemble task dispatch` hands the tasks of an instruction to the workers and writes the summary once.
set -u
while read -r line; do
    echo "dispatch: woken by: $line"
    "$ENSEMBLE" task dispatch --once
    while mail=$("$ENSEMBLE" recv --as dispatch --json 2>/dev/null); do
        id=$(printf '%s\n' "$mail" | sed 's/^{"id":"\([^"]*\)".*/\1/')
        case $mail in
        *'"type":"shutdown_request"'*) # the id is that of the request, a dot and a word
            "$ENSEMBLE" request answer --as dispatch "${id%.*}" --approve
            "$ENSEMBLE" settle --as dispatch "$id" >/dev/null
            exit 0 ;;
        *'"type":"dispatch.instruction"'*) "$ENSEMBLE" mailbox release --as dispatch "$id" >/dev/null; break ;;
        esac
        "$ENSEMBLE" settle --as dispatch "$id" >/dev/null
    done
done
