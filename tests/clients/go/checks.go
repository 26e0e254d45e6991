package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	random "math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lock is what an adapter holds.
type lock any

// adapter is what the checks need of a client. A nil lock is a refusal.
type adapter interface {
	take(name string, ttl time.Duration) (lock, error)
	wait(name string, ttl, limit time.Duration) (lock, error)
	extend(held lock, ttl time.Duration) (bool, error)
	release(held lock) (bool, error)
	// forge makes a lock of another owner, which holds nothing.
	forge(name string) lock
	// over makes an adapter of a majority; nil if the client has none.
	over(ports []int) adapter
}

const (
	host = "127.0.0.1"
	// How late a lock may pass on: the machine may be busy.
	slack = 8 * time.Second
	// Rows of a daemon that was killed live for at most this long.
	rowsMax = 45 * time.Second
)

var (
	port      = number("LOCKD_PORT", 6380)
	relayPort = number("LOCKD_RELAY_PORT", 0)
	ports     = allPorts()
)

// failed ends a check; skipped ends one that can't be made.
type (
	failed  string
	skipped string
)

func number(name string, otherwise int) int {
	if value, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return value
	}
	return otherwise
}

func allPorts() []int {
	var all []int
	for _, word := range strings.Fields(os.Getenv("LOCKD_PORTS")) {
		if value, err := strconv.Atoi(word); err == nil {
			all = append(all, value)
		}
	}
	return all
}

func must(condition bool, format string, values ...any) {
	if !condition {
		panic(failed(fmt.Sprintf(format, values...)))
	}
}

func sure[T any](value T, err error) T {
	must(err == nil, "%v", err)
	return value
}

func control(words ...string) {
	path := os.Getenv("LOCKD_CONTROL")
	if path == "" {
		panic(skipped("LOCKD_CONTROL is not set"))
	}
	output, err := exec.Command(path, words...).CombinedOutput()
	must(err == nil, "%v: %s", err, output)
}

func fresh(what string) string {
	return fmt.Sprintf("clients::%s::%s", what, rand.Text()[:12])
}

func taken(by adapter, name string, ttl time.Duration) lock {
	held := sure(by.take(name, ttl))
	must(held != nil, "a free lock was refused")
	return held
}

func mustRelease(by adapter, held lock) {
	must(sure(by.release(held)), "its release was refused")
}

func mustRefuse(by adapter, name, why string) {
	must(sure(by.take(name, 5*time.Second)) == nil, "%s", why)
}

// grantedAfter tries until the lock is granted: the lock, and the time since then.
func grantedAfter(by adapter, name string, ttl time.Duration, since time.Time, limit time.Duration) (lock, time.Duration) {
	for {
		held := sure(by.take(name, ttl))
		passed := time.Since(since)
		if held != nil {
			return held, passed
		}
		must(passed < limit, "still refused after %v", passed)
		time.Sleep(50 * time.Millisecond)
	}
}

// mustPassOn checks that the next owner gets the lock after the promised time, not before.
func mustPassOn(by adapter, name string, since time.Time, promised, limit time.Duration) lock {
	held, passed := grantedAfter(by, name, 20*time.Second, since, limit)
	must(passed >= promised, "granted to another after %v of %v", passed, promised)
	return held
}

// retried is what work comes to once the client has connected again.
func retried[T any](work func() (T, error)) T {
	var err error
	for range 20 {
		var value T
		if value, err = work(); err == nil {
			return value
		}
		time.Sleep(250 * time.Millisecond)
	}
	panic(failed(err.Error()))
}

var errCannotExtend = errors.New("the client can't extend")

type checks struct {
	mine, other adapter
	connect     func(port int) adapter
}

type check struct {
	name string
	run  func(checks)
}

var all = []check{
	{"lock", func(c checks) {
		name := fresh("lock")
		for range 3 {
			mustRelease(c.mine, taken(c.mine, name, 5*time.Second))
		}
	}},
	{"contended_is_refused", func(c checks) {
		name := fresh("refused")
		held := taken(c.mine, name, 20*time.Second)
		for range 3 {
			mustRefuse(c.other, name, "two hold it")
		}
		mustRelease(c.mine, held)
		mustRelease(c.other, taken(c.other, name, 5*time.Second))
	}},
	{"contended_waits", func(c checks) {
		name := fresh("waits")
		held := taken(c.mine, name, 20*time.Second)
		released := make(chan time.Time, 1)
		go func() {
			time.Sleep(time.Second)
			released <- time.Now()
			_, _ = c.mine.release(held)
		}()
		second := sure(c.other.wait(name, 20*time.Second, 15*time.Second))
		at := time.Now()
		must(second != nil, "the waiting client got nothing")
		must(!at.Before(<-released), "granted before the release")
		mustRelease(c.other, second)
	}},
	{"wait_ends", func(c checks) {
		name := fresh("wait-ends")
		held := taken(c.mine, name, 20*time.Second)
		begun := time.Now()
		second, _ := c.other.wait(name, 5*time.Second, time.Second)
		must(second == nil, "two hold it")
		must(time.Since(begun) < slack, "it waited too long")
		mustRelease(c.mine, held)
	}},
	{"extend", func(c checks) {
		name := fresh("extend")
		held := taken(c.mine, name, 3*time.Second)
		time.Sleep(time.Second)
		since := time.Now()
		must(sure(c.mine.extend(held, 4*time.Second)), "the extension was refused")
		mustPassOn(c.other, name, since, 4*time.Second, 4*time.Second+slack)
	}},
	{"expiry", func(c checks) {
		name, since := fresh("expiry"), time.Now()
		taken(c.mine, name, 2*time.Second)
		mustPassOn(c.other, name, since, 2*time.Second, 2*time.Second+slack)
	}},
	{"stranger_releases_nothing", func(c checks) {
		name := fresh("stranger")
		held := taken(c.mine, name, 20*time.Second)
		is, _ := c.other.release(c.other.forge(name))
		must(!is, "a stranger released it")
		mustRefuse(c.other, name, "a stranger's release set it free")
		mustRelease(c.mine, held)
	}},
	{"expired_release_is_harmless", func(c checks) {
		name, since := fresh("late-release"), time.Now()
		held := taken(c.mine, name, time.Second)
		second := mustPassOn(c.other, name, since, time.Second, time.Second+slack)
		is, _ := c.mine.release(held)
		must(!is, "the release of an expired lock succeeded")
		mustRefuse(c.mine, name, "a late release set another's lock free")
		mustRelease(c.other, second)
	}},
	{"expired_is_not_revived", func(c checks) {
		name := fresh("revive")
		held := taken(c.mine, name, time.Second)
		time.Sleep(1500 * time.Millisecond)
		is, _ := c.mine.extend(held, 5*time.Second)
		must(!is, "an expired lock was extended")
		second, _ := grantedAfter(c.other, name, 20*time.Second, time.Now(), slack)
		is, _ = c.mine.extend(held, 5*time.Second)
		must(!is, "an expired lock of another was extended")
		mustRelease(c.other, second)
	}},
	{"extends_do_not_add_up", func(c checks) {
		name := fresh("add-up")
		held := taken(c.mine, name, 5*time.Second)
		var since time.Time
		for range 5 {
			since = time.Now()
			must(sure(c.mine.extend(held, 5*time.Second)), "the extension was refused")
		}
		mustPassOn(c.other, name, since, 5*time.Second, 5*time.Second+slack)
	}},
	{"never_granted_expired", func(c checks) {
		name := fresh("fresh")
		for range 5 {
			taken(c.mine, name, time.Second)
			second := sure(c.other.wait(name, 20*time.Second, 15*time.Second))
			must(second != nil, "the waiting client got nothing")
			mustRefuse(c.mine, name, "a lock was granted that had expired already")
			mustRelease(c.other, second)
		}
	}},
	{"reconnect", func(c checks) {
		if relayPort == 0 {
			panic(skipped("LOCKD_RELAY_PORT is not set"))
		}
		name, mine := fresh("reconnect"), c.connect(relayPort)
		held := taken(mine, name, 20*time.Second)
		control("cut")
		mustRefuse(c.other, name, "the lock ended with its connection")
		is := retried(func() (bool, error) { return mine.release(held) })
		must(is, "its release over a new connection was refused")
		mustRelease(c.other, taken(c.other, name, 5*time.Second))
	}},
	{"killed_daemon_keeps_promises", func(c checks) {
		name, since := fresh("killed"), time.Now()
		held := taken(c.mine, name, 4*time.Second)
		control("kill", "1")
		got, _ := c.mine.take(fresh("down"), 5*time.Second)
		is, _ := c.mine.release(held)
		control("start", "1")
		must(got == nil, "granted without a daemon")
		must(!is, "released without a daemon")
		warm := fresh("warm")
		mustRelease(c.other, retried(func() (lock, error) { return c.other.take(warm, 20*time.Second) }))
		mustRelease(c.other, mustPassOn(c.other, name, since, 4*time.Second, rowsMax))
	}},
	{"next_daemon_releases", func(c checks) {
		name, warm := fresh("adopted"), fresh("warm")
		held := taken(c.mine, name, 20*time.Second)
		control("kill", "1")
		control("start", "1")
		mustRelease(c.mine, retried(func() (lock, error) { return c.mine.take(warm, 20*time.Second) }))
		got := retried(func() (lock, error) { return c.other.take(name, 5*time.Second) })
		must(got == nil, "the next daemon granted it to another")
		must(sure(c.mine.release(held)), "the next daemon did not release it")
		second, _ := grantedAfter(c.other, name, 5*time.Second, time.Now(), slack)
		mustRelease(c.other, second)
	}},
	// A client that waits while the daemon is killed gets an error, or the lock later.
	{"wait_outlasts_a_restart", func(c checks) {
		name, since := fresh("waits-killed"), time.Now()
		taken(c.mine, name, 4*time.Second)
		type result struct {
			held lock
			at   time.Time
		}
		results := make(chan result, 1)
		go func() {
			held, _ := c.other.wait(name, 20*time.Second, 12*time.Second)
			results <- result{held, time.Now()}
		}()
		time.Sleep(500 * time.Millisecond)
		control("kill", "1")
		control("start", "1")
		if got := <-results; got.held != nil {
			passed := got.at.Sub(since)
			must(passed >= 4*time.Second, "granted to another after %v of 4 s", passed)
		}
	}},
	// Redlock over three daemons of one cluster: at most one holds it, and never a majority.
	{"three_daemons_as_masters", func(c checks) {
		if len(ports) < 3 {
			panic(skipped("there are no three daemons"))
		}
		one, two := c.mine.over(ports[:3]), c.mine.over(ports[:3])
		if one == nil {
			panic(skipped("the client has no majority"))
		}
		var name string
		for range 5 {
			name = fresh("masters")
			locks := make(chan lock, 2)
			for _, by := range []adapter{one, two} {
				go func() {
					held, _ := by.take(name, 5*time.Second)
					locks <- held
				}()
			}
			held := 0
			for range 2 {
				if <-locks != nil {
					held++
				}
			}
			must(held < 2, "two hold it")
			must(held == 0, "a majority of three daemons granted one lock")
		}
		// What was granted by one of them was given back.
		held, _ := grantedAfter(c.mine, name, 5*time.Second, time.Now(), 5*time.Second+slack)
		mustRelease(c.mine, held)
	}},
}

// takeTurns takes the locks LOCKD_NAMES in turn with others, and writes to LOCKD_LOG from when to
// when it held which.
func takeTurns(client string, by adapter, limit time.Duration) {
	const ttl = 2 * time.Second
	names := strings.Fields(os.Getenv("LOCKD_NAMES"))
	log := sure(os.Create(os.Getenv("LOCKD_LOG")))
	for end := time.Now().Add(limit); time.Now().Before(end); {
		name := names[random.IntN(len(names))]
		until := monotonic() + ttl.Nanoseconds()
		held, err := by.take(name, ttl)
		begun := monotonic()
		if held == nil || err != nil {
			time.Sleep(time.Millisecond + time.Duration(random.Int64N(int64(19*time.Millisecond))))
			continue
		}
		// Some use all of their time, until whose end no other owner may have the lock.
		if random.IntN(300) == 0 {
			time.Sleep(time.Duration(until - begun))
		}
		if ended := min(monotonic(), until); begun < ended {
			_, _ = fmt.Fprintln(log, begun, ended, client, name)
		}
		_, _ = by.release(held)
		time.Sleep(time.Duration(random.Int64N(int64(5 * time.Millisecond))))
	}
	_ = log.Close()
}

// monotonic is the clock that programs in other languages read too.
func monotonic() int64 {
	var now unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil, "there is no clock")
	return now.Nano()
}

// run makes all checks with a client, and those of more. It returns whether one failed.
func run(client string, connect func(port int) adapter, more []check) bool {
	if seconds := number("LOCKD_TURNS", 0); seconds > 0 {
		takeTurns(client, connect(port), time.Duration(seconds)*time.Second)
		return false
	}
	context := checks{connect(port), connect(port), connect}
	only := strings.Fields(os.Getenv("LOCKD_CHECKS"))
	isFailed := false
	for _, it := range append(slices.Clone(all), more...) {
		if len(only) > 0 && !slices.Contains(only, it.name) {
			continue
		}
		switch why := outcome(it, context).(type) {
		case nil:
			fmt.Printf("ok %s %s\n", client, it.name)
		case skipped:
			fmt.Printf("skip %s %s: %s\n", client, it.name, why)
		case failed:
			isFailed = true
			fmt.Printf("not ok %s %s: %s\n", client, it.name, strings.ReplaceAll(string(why), "\n", " "))
		default:
			panic(why)
		}
	}
	return isFailed
}

func outcome(it check, context checks) (why any) {
	defer func() {
		why = recover()
		if why == failed(errCannotExtend.Error()) {
			why = skipped(errCannotExtend.Error())
		}
	}()
	it.run(context)
	return nil
}
