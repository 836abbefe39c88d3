#!/bin/sh
# An agent of the demo: waits for a line in its pane, takes its task, and then does what its name says.
set -u
take() { mail=$("$ENSEMBLE" recv --json) && id=$(printf '%s\n' "$mail" | sed 's/^{"id":"\([^"]*\)".*/\1/'); }
while read -r line; do
    case $ENSEMBLE_AGENT_ID in
    steady) while take; do "$ENSEMBLE" settle "$id"; done ;;
    silent) : ;; # reads the line, and does nothing about it
    asking)
        take && printf '\nMay I delete the directory build/? [y/n] '
        read -r answer && "$ENSEMBLE" settle "$id" && echo "thank you: $answer" ;;
    crashing) take && kill -9 $$ ;;
    esac
done
