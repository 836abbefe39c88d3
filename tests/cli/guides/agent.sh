#!/bin/sh
# Plays an agent's program as a guide starts it: `claude` draws a composer, reads hints, receives its mail and
# agrees to shut down; `claude -p PROMPT` and `codex exec -` answer once.
case " $* " in
*" -p "* | *" exec "*) echo "done"; exit 0 ;;
esac
draw() { printf '\033[2J\033[H\n────────\n❯ \0337\n────────\n  ? for shortcuts\0338'; }
while :; do
    draw
    IFS= read -r line || exit 0
    draw
    case $line in *"ensemble recv"* | *"mail for"*) ;; *) continue ;; esac
    while message=$(ensemble recv --json); do
        field() { printf '%s\n' "$message" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
        if [ "$(field type)" = shutdown_request ]; then
            ensemble request answer "$(field correlation_id)" --approve && exit 0
        fi
        ensemble settle "$(field id)"
    done
done
