#!/bin/sh
# A reviewer: tries it out.
set -eu
ensemble() { while "$ENSEMBLE" "$@"; code=$?; [ "$code" -eq 75 ]; do sleep 0.2; done; return "$code"; }
cat >/dev/null
ensemble agent verify
said=$(sh greet.sh you)
if [ "$said" = "hello, you" ]; then
    ensemble task verdict "$ENSEMBLE_TASK_ID" --approve
else
    ensemble task verdict "$ENSEMBLE_TASK_ID" --reject --reason "it says '$said': to whom?"
fi
