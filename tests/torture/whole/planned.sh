# A supervised agent, `planned.sh ROLE`: submits the plan that some tasks need, and goes on as agent.sh.
me=$ENSEMBLE_AGENT_ID epoch=$ENSEMBLE_TASK_EPOCH
. "$HERE/common.sh"
if [ "$1" = coder ] && [ $((${ENSEMBLE_TASK_ID#t} % 6)) = 2 ]; then
    refused="$E task submit $ENSEMBLE_TASK_ID"
    plan "$ENSEMBLE_TASK_ID" || exit 1
    say planned "$ENSEMBLE_TASK_ID" "$epoch" $$
fi
exec sh "$HERE/agent.sh" "$1"
