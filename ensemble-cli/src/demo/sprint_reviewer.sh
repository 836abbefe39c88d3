#!/bin/sh
# A reviewer: tries it out.
set -eu
cat >/dev/null
"$ENSEMBLE" agent verify
said=$(sh greet.sh you)
if [ "$said" = "hello, you" ]; then
    "$ENSEMBLE" task verdict "$ENSEMBLE_TASK_ID" --approve
else
    "$ENSEMBLE" task verdict "$ENSEMBLE_TASK_ID" --reject --reason "it says '$said': to whom?"
fi
