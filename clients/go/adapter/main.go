// The adapter of `ensemble admin conformance` (conformance/README.md). Usage: adapter QUEUE
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"ensemble"
)

type call struct {
	Op, Mailbox, Holder, ID, Reason, From, Type string
	Epoch, Seconds, Priority                    int
	BodyFile                                    string `json:"body_file"`
	DelayMs                                     int64  `json:"delay_ms"`
	Task                                        string `json:"task_id"`
	Correlation                                 string `json:"correlation_id"`
}

func perform(queue ensemble.Queue, c call) (answer map[string]any, err error) {
	answer = map[string]any{}
	lease := ensemble.Lease{Mailbox: c.Mailbox, ID: c.ID, Holder: c.Holder, Epoch: c.Epoch}
	switch c.Op {
	case "send":
		body, _ := os.ReadFile(c.BodyFile)
		fields := ensemble.Fields{"from": c.From, "type": c.Type, "priority": c.Priority}
		texts := map[string]string{"id": c.ID, "task_id": c.Task, "correlation_id": c.Correlation}
		for key, value := range texts {
			if value != "" {
				fields[key] = value
			}
		}
		answer["id"], err = queue.Send(c.Mailbox, string(body), fields)
	case "receive":
		message, failed := queue.Receive(c.Mailbox, c.Holder)
		if message == nil {
			return answer, failed
		}
		answer = message.Fields
		answer["holder"], answer["epoch"] = message.Lease.Holder, message.Lease.Epoch
		err = os.WriteFile(c.BodyFile, []byte(message.Body), 0o600)
	case "settle":
		err = queue.Settle(lease)
	case "release":
		err = queue.Release(lease, time.Duration(c.DelayMs)*time.Millisecond)
	case "extend":
		err = queue.Extend(lease, c.Seconds)
	case "dead_letter":
		err = queue.DeadLetter(lease, c.Reason)
	case "state":
		answer["state"], err = queue.State(c.Mailbox, c.ID)
	}
	return answer, err
}

func main() {
	queue := ensemble.Queue{Root: os.Args[1], Power: true}
	fmt.Println(`{"client":"go","durability":"power","locks":"flock"}`)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var c call
		json.Unmarshal(lines.Bytes(), &c)
		answer, err := perform(queue, c)
		refused := ensemble.Error{Code: "io"}
		if errors.As(err, &refused); err != nil {
			answer = map[string]any{"error": refused.Code, "detail": err.Error()}
		}
		answer["ok"] = err == nil
		text, _ := json.Marshal(answer)
		fmt.Println(string(text))
	}
}
