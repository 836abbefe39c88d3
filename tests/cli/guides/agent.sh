#!/bin/sh
# Plays an agent's program as a guide starts it: `claude` draws a composer, answers pings, reads hints, receives its
# mail, reports its tasks and agrees to shut down; `claude -p PROMPT` and `codex exec -` answer once.
case " $* " in
*" -p "* | *" exec "*) echo "done"; exit 0 ;;
esac
draw() { printf '\033[2J\033[H\n────────\n❯ \0337\n────────\n  ? for shortcuts\0338'; }
while :; do
    draw
    IFS= read -r line || exit 0
    draw
    case $line in
    *AGENT_TEAM_PING*) set -- ${line#*AGENT_TEAM_PING}; ensemble agent pong "$1" "$2"; continue ;;
    *"ensemble recv"* | *"mail for"*) ;;
    *) continue ;;
    esac
    while message=$(ensemble recv --json); do
        field() { printf '%s\n' "$message" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
        case $(field type) in
        shutdown_request) ensemble request answer "$(field correlation_id)" --approve && exit 0 ;;
        task)
            ensemble report "$(field task_id)" --status success \
                --summary "$(field to) counted 1 of 1 files (100%): 1 line in src/main.rs:1" ;;
        *) ensemble settle "$(field id)" ;;
        esac
    done
done
