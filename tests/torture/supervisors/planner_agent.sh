#!/bin/sh
# An agent whose tasks demand a plan: it does what its prompt says. Each prompt is kept in $HOME/prompts.
prompt=$(cat)
mkdir -p "$HOME/prompts"
number=$(ls "$HOME/prompts" | wc -l)
printf '%s\n' "$prompt" >"$HOME/prompts/$number-$ENSEMBLE_AGENT_ID"
case $prompt in
*"WAKE TRIGGER: INITIAL_PLANNING"*)
    exec "$ENSEMBLE" task add t1 -d work --spec s.md --done-when works --needs-plan ;;
*PLAN_SUBMITTED*)
    "$ENSEMBLE" request list --pending --json | sed -n 's/.*"request_id":"\([^"]*\)".*/\1/p' |
        while read -r id; do "$ENSEMBLE" request answer "$id" --approve --reason "tests first"; done
    exit 0 ;;
*"First a plan"* | *"has rejected your plan"* | *"has not reviewed your plan"*)
    to=$(printf '%s\n' "$prompt" | sed -n 's/.*--to \([^ ]*\) --task .*/\1/p' | head -n 1)
    echo "plan number $number" | "$ENSEMBLE" request plan -f - --to "$to" --task "$ENSEMBLE_TASK_ID" $WAIT || exit 1
    [ "$WAIT" ] || exit 0 ;;
*"has approved your plan"*) ;;
*) exit 9 ;;
esac
echo work >done.txt
git add done.txt && git commit --quiet -m work
exec "$ENSEMBLE" task submit "$ENSEMBLE_TASK_ID"
