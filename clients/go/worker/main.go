// A worker: prints what it receives, until that says `stop`. Usage: worker QUEUE NAME
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"ensemble"
	"ensemble/api"
)

func main() {
	queue, name := ensemble.Queue{Root: os.Args[1], Power: true}, os.Args[2]
	calls, err := api.Start(queue.Root, name, "")
	way := "the API"
	if err != nil {
		calls, way = nil, "looks"
	}
	fmt.Println("waits by " + way)
	for text := ""; text != "stop"; {
		message, err := api.ReceiveWait(queue, name, name, time.Minute, calls)
		if err == nil && message != nil {
			text = strings.TrimSpace(message.Body)
			fmt.Println(text)
			err = queue.Settle(message.Lease)
		}
		if err != nil || message == nil {
			log.Fatal("no message: ", err)
		}
	}
	if calls != nil {
		calls.Close()
	}
}
