// Package api calls commands of Ensemble through one process, `ensemble admin api`.
//
//	calls, err := api.Start("queue", "conductor", "")
//	...
//	defer calls.Close()
//	calls.Call("send", api.Params{"to": []string{"worker-1"}, "text": "Count the lines."})
//	news, err := calls.Wait("mail", time.Minute, api.Params{"mailbox": "worker-1"})
//
// docs/guides/api.md explains the calls. ReceiveWait serves programs that use the package ensemble:
// it waits without polling where the program is installed.
package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"ensemble"
)

const (
	protocol = 1
	look     = time.Second
)

// Params are flags and arguments of a command by name.
type Params map[string]any

// Line is an object that a command prints under --json.
type Line map[string]any

// Error is a refused call. Code is a code of docs/reference/exit-codes.md, or closed.
type Error struct{ Code, Message, Hint string }

func (e *Error) Error() string {
	return strings.TrimSuffix(e.Message+" (hint: "+e.Hint+")", " (hint: )")
}

var over = &Error{Code: "closed", Message: "the API has ended"}

type greeting struct {
	Protocol     int
	LineBytesMax int `json:"line_bytes_max"`
}

type answer struct {
	ID, Subscription uint64
	Hello            greeting
	Result           json.RawMessage
	News             Line
	Error            *Error
}

// API is a running `ensemble admin api`. Goroutines may share it.
type API struct {
	stdin   io.WriteCloser
	mutex   sync.Mutex
	changed *sync.Cond
	last    uint64
	said    map[uint64][]answer // Lines for each call or subscription that is waited for.
	isOver  bool
	ended   chan error
	lineMax int
}

// Start starts the program: the given one, the variable ENSEMBLE_BIN, or the first one on PATH.
// Without such a program it returns an error of the package exec or os.
func Start(queue, agent, program string) (*API, error) {
	for _, other := range []string{os.Getenv("ENSEMBLE_BIN"), "ensemble"} {
		if program == "" {
			program = other
		}
	}
	command := exec.Command(program, "--queue", queue, "admin", "api")
	if agent != "" {
		command.Args = append(command.Args, "--as", agent)
	}
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	a := &API{stdin: stdin, said: map[uint64][]answer{}, ended: make(chan error, 1)}
	a.changed = sync.NewCond(&a.mutex)
	lines, hello := json.NewDecoder(stdout), answer{}
	isKnown := lines.Decode(&hello) == nil && hello.Hello.Protocol == protocol
	a.lineMax = hello.Hello.LineBytesMax
	go func() {
		a.read(lines)
		a.ended <- command.Wait()
	}()
	if !isKnown {
		a.Close()
		return nil, &Error{Code: "closed", Message: program + " does not speak this API"}
	}
	return a, nil
}

// Call returns the objects that a command prints under --json. The method is its words.
func (a *API) Call(method string, params Params) (lines []Line, err error) {
	id, err := a.ask(method, params)
	if err != nil {
		return nil, err
	}
	defer a.forget(id)
	said, err := a.next(id)
	if err != nil {
		return nil, err
	}
	return lines, json.Unmarshal(said.Result, &lines)
}

// Wait returns the first news of mail, states, requests or events; nil after the time-out.
func (a *API) Wait(to string, timeout time.Duration, params Params) (Line, error) {
	seconds := int(math.Ceil(timeout.Seconds()))
	lines, err := a.Call("wait", params.with(Params{"to": to, "timeout_seconds": seconds}))
	refused := &Error{}
	if errors.As(err, &refused) && refused.Code == "nothing" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return lines[0], nil
}

// Follow hands over news as they happen, until the function says false or the process ends.
func (a *API) Follow(to string, params Params, each func(Line) bool) error {
	id, err := a.ask("subscribe", params.with(Params{"to": to}))
	if err != nil {
		return err
	}
	defer a.forget(id)
	for {
		said, err := a.next(id)
		if err != nil {
			return err
		}
		if said.News != nil && !each(said.News) {
			_, err := a.Call("unsubscribe", Params{"subscription": id})
			return err
		}
	}
}

// Close ends the process: calls at work are finished first.
func (a *API) Close() error {
	a.stdin.Close()
	err := <-a.ended
	a.ended <- err
	return err
}

// ReceiveWait takes the next due message and waits for it: by the API, or by a look each second if
// that is nil.
func ReceiveWait(queue ensemble.Queue, mailbox, holder string, timeout time.Duration, a *API) (
	*ensemble.Message, error) {
	var known any
	for end := time.Now().Add(timeout); ; {
		message, err := queue.Receive(mailbox, holder)
		left := time.Until(end)
		if message != nil || err != nil || left <= 0 {
			return message, err
		}
		var news Line
		if a != nil {
			where := Params{"mailbox": mailbox, "where": Params{"state": "queued"}}
			if news, err = a.Wait("mail", left, where); err != nil {
				return nil, err
			}
		}
		if left = time.Until(end); left > look {
			left = look
		}
		if news["id"] == known { // There is no API, or what waits may not be received yet.
			time.Sleep(left)
		}
		known = news["id"]
	}
}

func (p Params) with(more Params) Params {
	for key, value := range p {
		more[key] = value
	}
	return more
}

func (a *API) ask(method string, params Params) (uint64, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.isOver {
		return 0, over
	}
	a.last++
	line, err := json.Marshal(map[string]any{"id": a.last, "method": method, "params": params})
	if err == nil && len(line) >= a.lineMax { // The answer would not say which call it is for.
		err = &Error{Code: "too_large", Message: fmt.Sprintf("a call has at most %d bytes", a.lineMax)}
	}
	if err != nil {
		return 0, err
	}
	a.said[a.last] = nil
	_, err = a.stdin.Write(append(line, '\n'))
	return a.last, err
}

func (a *API) forget(id uint64) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.said, id)
}

// next waits for the next line of a call or a subscription.
func (a *API) next(id uint64) (answer, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	for len(a.said[id]) == 0 {
		if a.isOver {
			return answer{}, over
		}
		a.changed.Wait()
	}
	said := a.said[id][0]
	a.said[id] = a.said[id][1:]
	if said.Error != nil {
		return said, said.Error
	}
	return said, nil
}

func (a *API) read(lines *json.Decoder) {
	for {
		said := answer{}
		err := lines.Decode(&said)
		a.mutex.Lock()
		id := said.ID + said.Subscription // One of them is set.
		if _, isWaited := a.said[id]; isWaited {
			a.said[id] = append(a.said[id], said)
		}
		a.isOver = err != nil
		a.changed.Broadcast()
		a.mutex.Unlock()
		if err != nil {
			return
		}
	}
}
