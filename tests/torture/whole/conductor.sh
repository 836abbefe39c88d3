# The conductor, in a pane: decides on plans, some of them late and some twice, and reads the rest of its mail.
me=$ENSEMBLE_AGENT_ID
. "$HERE/common.sh"
say up - 0 $$
while [ ! -e "$STOP" ]; do
    now
    got=$(e recv --json 2>/dev/null)
    [ -n "$got" ] || { read -r -t 0.3 _; continue; }
    id=$(pick id) request=$(pick request_id) task=$(pick task_id)
    case $(pick type) in
    plan_approval_request)
        [ $((RANDOM % 3)) != 0 ] || nap $((RANDOM % 5))
        if [ $((${task##*[!0-9]} % 4)) = 2 ] && [[ $got == *'"round":1,'* ]]; then
            set -- --reject --feedback "count again"
        else
            say approving "$task" 0 $$ "$(pick from)"
            set -- --approve
        fi
        # On a full disk there is no answer yet.
        until e request answer "$request" "$@" >/dev/null 2>&1 || [ $? != 75 ]; do nap 1; done
        ;;
    shutdown_request) e request answer "$request" --approve >/dev/null 2>&1 && exit 0 ;;
    esac
    e settle "$id" >/dev/null 2>&1
done
