#!/bin/sh
# A planner: cuts the goal into one task, as soon as it is asked to.
set -eu
ensemble() { while "$ENSEMBLE" "$@"; code=$?; [ "$code" -eq 75 ]; do sleep 0.2; done; return "$code"; }
prompt=$(cat)
case $prompt in
*INITIAL_PLANNING*)
    echo "planner: one task is enough"
    ensemble task add greet --description "Greet a named person" --spec specs/greet.md \
        --done-when "sh greet.sh you says: hello, you" ;;
*) echo "planner: nothing to plan" ;;
esac
