# The work of examples/worker.sh: reads a message, prints what was done. $held is the message's file.
me=box-1
. "$HERE/common.sh"
cat >/dev/null
file=${held##*/} task=$(sed -n 's/^task_id: *//p' "$held" | head -n 1 | tr -d '"')
epoch=${file##*@}
# It was asked for before the file moved, by the machine's own clocks; a look at the mailbox takes a while.
now
age=$(($(LD_PRELOAD= date +%s) - $(stat -c %Z "$held")))
asked=$((${asked%.*} - age - 3))
begin "$task" "${epoch%.yaml}"
nap 0.$((number % 7 + 2))
[ $((number % 7)) != 3 ] || { say hand "$task" "$epoch" $$ released; exit 1; }
say hand "$task" "$epoch" $$ success
echo "$task is done"
