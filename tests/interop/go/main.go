// Apache's Go client as a program that tells by JSON lines what happens.
//
//	client roundtrip NAMESRV                            sends messages of several kinds, and consumes them
//	client orders NAMESRV IS_TRACED [ACCESS_KEY SECRET]  does what the JSON lines of its input say, until that ends: see orders.go
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type event map[string]any

var printing sync.Mutex

func tell(members event) {
	printing.Lock()
	defer printing.Unlock()
	line, err := json.Marshal(members)
	must(err)
	fmt.Println(string(line))
}

func main() {
	rlog.SetLogLevel("error")
	nameServers := []string{os.Args[2]}
	if os.Args[1] == "roundtrip" {
		roundTrip(nameServers)
		return
	}
	mine := newPeer(nameServers, os.Args[3] == "true")
	if len(os.Args) > 5 {
		mine.credentials = primitive.Credentials{AccessKey: os.Args[4], SecretKey: os.Args[5]}
	}
	mine.obey(os.Stdin)
}
