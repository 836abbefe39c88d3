#!/bin/sh
# Conductor: says what is to be done, then sleeps until a line is typed into its pane.
set -u
echo "conductor: handing out the work"
"$ENSEMBLE" send --as conductor --to dispatch --type dispatch.instruction -f "$DEMO/instruction.yaml" >/dev/null

while read -r line; do
    echo "conductor: woken by: $line"
    while mail=$("$ENSEMBLE" recv --as conductor --json 2>/dev/null); do
        id=$(printf '%s\n' "$mail" | sed 's/^{"id":"\([^"]*\)".*/\1/')
        case $mail in *'"type":"shutdown_request"'*)
            "$ENSEMBLE" request answer --as conductor "${id%.*}" --approve
            "$ENSEMBLE" settle --as conductor "$id" >/dev/null
            exit 0 ;;
        esac
        sed -n 's/^  //p' "$QUEUE"/mailbox/conductor/cur/"$id"@*.yaml
        "$ENSEMBLE" settle --as conductor "$id" >/dev/null
    done
done
