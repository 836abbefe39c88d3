// Package ensemble is a client of the Ensemble queue protocol, version 1, in one file.
//
//	queue := ensemble.Queue{Root: "queue", Power: true}
//	queue.Send("worker-1", "Count the lines.\n", ensemble.Fields{"from": "me", "type": "task"})
//	for {
//		message, err := queue.Receive("worker-1", "worker-1")
//		if message == nil || err != nil {
//			break
//		}
//		fmt.Println(message.Body)
//		queue.Settle(message.Lease)
//	}
//
// PROTOCOL.md specifies what is on disk. An envelope that is not in the canonical form becomes a
// dead letter. The package api waits for mail without polling where `ensemble` is installed.
//
// Inside the package a failure is a panic, which each exported function turns into its error.
package ensemble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"syscall"
	"time"
)

var (
	forever  = 1 << 62
	inFront  = `@p([0-9])@e(` + number + `)@t(` + number + `)`
	queued   = regexp.MustCompile(`^(` + name + `)(?:` + inFront + `)?\.yaml$`)
	states   = []string{"new", "front", "cur", "done", "dead"}
	receipts = map[string]string{"new": "stored", "front": "stored", "cur": "acked", "done": "settled",
		"dead": "dead", ".": "unknown"}
)

// Lease names one delivery. Its operations are refused once another delivery has begun.
type Lease struct {
	Mailbox, ID, Holder string
	Epoch               int
}

// Message is a received message.
type Message struct {
	Lease  Lease
	Body   string
	Fields Fields
}

// Queue is a queue. Without Power, a power cut may lose what was stored.
type Queue struct {
	Root  string
	Power bool
}

// Send stores a message and returns its id. The same chosen "id" is stored once.
func (q Queue) Send(to, body string, given Fields) (id string, err error) {
	defer caught(&err, Lease{})
	box, fields := q.box(to), defaults(NewID())
	fields["to"] = to
	for key, value := range given {
		fields[key] = value
	}
	content, id := encode(fields, body), fmt.Sprint(fields["id"])
	target := filepath.Join(box, "new", id+".yaml")
	if fields["priority"] != 0 {
		target = filepath.Join(box, "front", fmt.Sprintf("%s@p%d@e0@t0.yaml", id, fields["priority"]))
	}
	capacity := atoi(small(filepath.Join(box, "mailbox.yaml"))["capacity"])
	if capacity > 0 || given["id"] != nil {
		defer lock(box, syscall.LOCK_EX).Close()
		for given["id"] != nil {
			isStored, err := q.isStored(box, id, fields, body)
			if isStored {
				return id, nil
			}
			if !errors.Is(err, fs.ErrNotExist) { // Otherwise it has moved: look again.
				check(err)
				break
			}
		}
		if capacity > 0 && len(waiting(box, forever)) >= capacity {
			count := filepath.Join(box, "overflow.yaml")
			note := fmt.Sprintf("last_at: %q\nlast_from: %q\n", stamp(), fields["from"])
			q.write(count, fmt.Sprintf("refused: %d\n%s", atoi(small(count)["refused"])+1, note))
			check(Error{"full", "the mailbox " + to + " has no room"})
		}
	}
	q.write(target, content)
	return id, nil
}

// Receive takes the next due message, or nil. Broken and expired ones become dead letters.
func (q Queue) Receive(mailbox, holder string) (message *Message, err error) {
	defer caught(&err, Lease{})
	box := q.box(mailbox)
	for _, next := range waiting(box, int(time.Now().UnixMilli())) {
		lease := Lease{mailbox, next.id, holder, next.epoch + 1}
		if q.isGated(next.path, next.id, holder, true) {
			continue
		}
		message, err := take(next.path, filepath.Join(box, "cur", lease.file()), lease)
		refused := Error{}
		switch {
		case err == nil:
			return message, nil
		case errors.As(err, &refused) && refused.Code == "expired":
			check(q.DeadLetter(lease, "expired"))
		case errors.As(err, &refused):
			check(q.DeadLetter(lease, "malformed: "+refused.Text))
		case !errors.Is(err, fs.ErrNotExist): // Another consumer has it, or the lease is over.
			return nil, err
		}
	}
	return nil, nil
}

// Settle marks the work as done. Refused: an open request, and a task whose plan is not approved.
func (q Queue) Settle(lease Lease) (err error) {
	defer caught(&err, lease)
	box, held := q.held(lease)
	refuseIf(q.isUndecided(held, lease.ID), "refused", "the request "+lease.ID+" has no decision")
	isGated := q.isGated(held, lease.ID, lease.Holder, false)
	refuseIf(isGated, "refused", "the plan of "+lease.ID+" is not approved")
	q.move(box, lease, "done/"+lease.ID+".yaml")
	return nil
}

// Release gives a message back. After its last attempt it becomes a dead letter.
func (q Queue) Release(lease Lease, delay time.Duration) (err error) {
	defer caught(&err, lease)
	box, held := q.held(lease)
	attempts, reason := lease.Epoch, small(filepath.Join(box, "dead", lease.ID+"@reason.yaml"))
	if reason["redriven"] == "true" {
		attempts -= atoi(reason["epoch"])
	}
	if attempts >= atoi(small(filepath.Join(box, "mailbox.yaml"))["attempts_max"]) {
		return q.DeadLetter(lease, fmt.Sprintf("released after %d attempts", attempts))
	}
	due := int64(0)
	if delay > 0 {
		due = time.Now().Add(delay).UnixMilli()
	}
	defer lock(box, syscall.LOCK_SH).Close()
	fields, _ := decode(held, lease.ID)
	name := fmt.Sprintf("%s@p%d@e%d@t%d.yaml", lease.ID, fields["priority"], lease.Epoch, due)
	q.move(box, lease, "front/"+name)
	return nil
}

// Extend lets the lease run for so many seconds from now.
func (q Queue) Extend(lease Lease, seconds int) (err error) {
	defer caught(&err, lease)
	refuseIf(seconds < 1 || seconds > 86_400, "invalid", "a lease lasts 1 to 86400 seconds")
	box, held := q.held(lease)
	sequence := atoi(small(lease.side(box))["sequence"]) + 1
	q.write(lease.side(box), fmt.Sprintf("sequence: %d\nlease_seconds: %d\n", sequence, seconds))
	if !exists(held) {
		check(os.Remove(lease.side(box)))
	}
	q.held(lease)
	return nil
}

// DeadLetter gives a message up, with a reason for people.
func (q Queue) DeadLetter(lease Lease, reason string) (err error) {
	defer caught(&err, lease)
	box := q.box(lease.Mailbox)
	defer lock(box, syscall.LOCK_EX).Close()
	q.held(lease)
	reason = quoted(fmt.Sprintf("%.1000s", special.ReplaceAllString(reason, "")))
	note := fmt.Sprintf("reason: %s\nat: %q\nholder: %q\n", reason, stamp(), lease.Holder)
	note += fmt.Sprintf("epoch: %d\nredriven: false\n", lease.Epoch)
	q.write(filepath.Join(box, "dead", lease.ID+"@reason.yaml"), note)
	q.move(box, lease, "dead/"+lease.ID+".yaml")
	return nil
}

// State is the receipt of a message: stored, acked, settled, dead or unknown.
func (q Queue) State(mailbox, id string) (receipt string, err error) {
	defer caught(&err, Lease{})
	return receipts[filepath.Base(filepath.Dir(find(q.box(mailbox), id)))], nil
}

// take receives a message.
func take(path, held string, lease Lease) (message *Message, err error) {
	defer caught(&err, Lease{})
	check(os.Rename(path, held))
	fields, body := decode(held, lease.ID)
	if expires, isSet := fields["expires_at"].(string); isSet {
		isOver := !must(time.Parse(time.RFC3339, expires)).After(time.Now())
		refuseIf(isOver, "expired", "its time is over")
	}
	return &Message{lease, body, fields}, nil
}

func (q Queue) box(mailbox string) string {
	refuseIf(!nameForm.MatchString(mailbox), "invalid", mailbox+" is no name")
	box := filepath.Join(q.Root, "mailbox", mailbox)
	for _, place := range []string{q.Root, box} {
		found, err := os.Lstat(place)
		isSafe := err == nil && found.IsDir() && found.Mode()&0o002 == 0
		refuseIf(!isSafe, "refused", place+" is no directory, or every user may write to it")
	}
	for _, state := range append(states, "lease", "../../tmp") {
		check(os.MkdirAll(filepath.Join(box, state), 0o700))
	}
	return box
}

// held is the mailbox and the file of a held message.
func (q Queue) held(lease Lease) (box, held string) {
	box = q.box(lease.Mailbox)
	held = filepath.Join(box, "cur", lease.file())
	must(os.Lstat(held))
	return box, held
}

func (q Queue) write(target, content string) {
	file := must(os.CreateTemp(filepath.Join(q.Root, "tmp"), filepath.Base(target)+".*")) // Mode 0600.
	// It is there only if something failed.
	defer os.Remove(file.Name())
	defer file.Close()
	must(file.WriteString(content))
	q.sync(file.Name())
	check(os.Rename(file.Name(), target))
	q.sync(filepath.Dir(target))
}

func (q Queue) move(box string, lease Lease, target string) {
	check(os.Rename(filepath.Join(box, "cur", lease.file()), filepath.Join(box, target)))
	os.Remove(lease.side(box)) // There is none, most often.
	q.sync(filepath.Dir(filepath.Join(box, target)))
}

func (q Queue) sync(path string) {
	if q.Power {
		file := must(os.Open(path))
		defer file.Close()
		check(file.Sync())
	}
}

func (l Lease) file() string {
	isFine := nameForm.MatchString(l.ID) && nameForm.MatchString(l.Holder)
	refuseIf(!isFine, "invalid", l.ID+" or "+l.Holder+" is no name")
	return fmt.Sprintf("%s@%s@%d.yaml", l.ID, l.Holder, l.Epoch)
}

func (l Lease) side(box string) string {
	return filepath.Join(box, "lease", fmt.Sprintf("%s@%d.yaml", l.ID, l.Epoch))
}

// lock is the lock of a mailbox, until it is closed.
func lock(box string, kind int) *os.File {
	gate := must(os.OpenFile(filepath.Join(box, "gate.lock"), os.O_CREATE|os.O_RDWR, 0o600))
	err := syscall.Flock(int(gate.Fd()), kind)
	for err == syscall.EINTR { // Signals of the runtime interrupt the wait.
		err = syscall.Flock(int(gate.Fd()), kind)
	}
	check(err)
	return gate
}

type candidate struct {
	path, id, rank string
	epoch          int
}

// waiting lists the due messages in the order of receipt.
func waiting(box string, now int) (found []candidate) {
	for _, state := range []string{"front", "new"} {
		for _, entry := range must(os.ReadDir(filepath.Join(box, state))) {
			path, match := filepath.Join(box, state, entry.Name()), queued.FindStringSubmatch(entry.Name())
			if match != nil && (match[2] != "") == (state == "front") && atoi(match[4]) <= now {
				rank := fmt.Sprintf("%s%d%016x", state, 9-atoi(match[2]), age(path, match[1]))
				found = append(found, candidate{path, match[1], rank, atoi(match[3])})
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].rank < found[j].rank })
	return found
}

// isGated says whether the plan of a message's task is missing; one may be taken to be planned.
func (q Queue) isGated(path, id, holder string, mayPlan bool) bool {
	task, gates := "", filepath.Join(q.Root, "gates")
	if exists(gates) {
		task = taskOf(path, id)
	}
	if task == "" {
		return false
	}
	if !nameForm.MatchString(task) {
		task = "t-" + digest(task)[:40]
	}
	gate := filepath.Join(gates, task+"@"+holder+".yaml")
	isDemanded := exists(filepath.Join(gates, task+"@.yaml")) && !mayPlan
	if !exists(gate) {
		return isDemanded
	}
	asked := filepath.Join(q.Root, "requests", small(gate)["request_id"])
	decision := small(filepath.Join(asked, "decision.yaml"))
	if decision["outcome"] == "approved" || decision["approve"] == "true" {
		return false
	}
	isNone := decision["outcome"] == "cancelled" || !exists(filepath.Join(asked, "request.yaml"))
	return isDemanded || !isNone || small(gate)["request_id"] == ""
}

// find looks along the way of a message. The last look finds what was released without a lock.
func find(box, id string) string {
	for _, state := range append(states, "front") {
		if plain := filepath.Join(box, state, id+".yaml"); exists(plain) {
			return plain
		}
		if state != "front" && state != "cur" {
			continue
		}
		for _, entry := range must(os.ReadDir(filepath.Join(box, state))) {
			if strings.HasPrefix(entry.Name(), id+"@") {
				return filepath.Join(box, state, entry.Name())
			}
		}
	}
	return ""
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }
