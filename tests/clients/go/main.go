// The lock clients of Go: redsync and bsm/redislock, on go-redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	redis.SetLogger(silent{})
	clients := map[string]func() bool{
		"redsync":   func() bool { return run("redsync", redsyncOf, redsyncChecks) },
		"redislock": func() bool { return run("redislock", redislockOf, redislockChecks) },
	}
	isFailed := false
	for _, name := range os.Args[1:] {
		isFailed = clients[name]() || isFailed
	}
	if isFailed {
		os.Exit(1)
	}
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func dial(port int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: fmt.Sprintf("%s:%d", host, port),
		// The limits of redsync hold for the answers too.
		ContextTimeoutEnabled: true,
	})
}

// redsync

type ofRedsync struct {
	redsync *redsync.Redsync
	pools   []int
}

func redsyncOf(port int) adapter { return redsyncOver([]int{port}) }

func redsyncOver(ports []int) adapter {
	sync := &ofRedsync{pools: ports}
	all := make([]*redis.Client, 0, len(ports))
	for _, port := range ports {
		all = append(all, dial(port))
	}
	switch len(all) {
	case 1:
		sync.redsync = redsync.New(goredis.NewPool(all[0]))
	default:
		sync.redsync = redsync.New(goredis.NewPool(all[0]), goredis.NewPool(all[1]), goredis.NewPool(all[2]))
	}
	return sync
}

func (r *ofRedsync) mutex(name string, ttl time.Duration, more ...redsync.Option) *redsync.Mutex {
	// By default a step may take a twentieth of the time to live: too little for a busy machine.
	options := []redsync.Option{redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(0.5)}
	return r.redsync.NewMutex(name, append(options, more...)...)
}

func refused(err error) bool {
	taken, node := &redsync.ErrTaken{}, &redsync.ErrNodeTaken{}
	return errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) || errors.As(err, &node) ||
		errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.Is(err, redsync.ErrExtendFailed)
}

func unlessRefused[T any](value T, err error) (T, error) {
	if refused(err) {
		return value, nil
	}
	return value, err
}

func (r *ofRedsync) take(name string, ttl time.Duration) (lock, error) {
	mutex := r.mutex(name, ttl)
	if err := mutex.TryLock(); err != nil {
		return unlessRefused[lock](nil, err)
	}
	return mutex, nil
}

func (r *ofRedsync) wait(name string, ttl, limit time.Duration) (lock, error) {
	mutex := r.mutex(name, ttl,
		redsync.WithTries(int(limit/(100*time.Millisecond))),
		redsync.WithRetryDelay(100*time.Millisecond))
	if err := mutex.Lock(); err != nil {
		return unlessRefused[lock](nil, err)
	}
	return mutex, nil
}

// It extends by the time that the mutex was made with.
func (r *ofRedsync) extend(held lock, ttl time.Duration) (bool, error) {
	mutex := held.(*redsync.Mutex)
	again := r.mutex(mutex.Name(), ttl, redsync.WithValue(mutex.Value()))
	return unlessRefused(again.Extend())
}

func (r *ofRedsync) release(held lock) (bool, error) {
	return unlessRefused(held.(*redsync.Mutex).Unlock())
}

func (r *ofRedsync) forge(name string) lock {
	return r.mutex(name, 5*time.Second, redsync.WithValue("another"))
}

func (r *ofRedsync) over(ports []int) adapter { return redsyncOver(ports) }

var redsyncChecks = []check{
	{"valid_is_seen", func(c checks) {
		mutex := taken(c.mine, fresh("valid"), 20*time.Second).(*redsync.Mutex)
		must(sure(mutex.Valid()), "its owner does not see that it has it")
		mustRelease(c.mine, mutex)
		is, _ := mutex.Valid()
		must(!is, "it seems to be held after its release")
	}},
	{"second_release_says_expired", func(c checks) {
		mutex := taken(c.mine, fresh("twice"), 20*time.Second).(*redsync.Mutex)
		mustRelease(c.mine, mutex)
		_, err := mutex.Unlock()
		must(errors.Is(err, redsync.ErrLockAlreadyExpired), "the answer was %v", err)
	}},
	// The script of this option takes a lock again that has expired: served as an extension only.
	{"set_nx_on_extend_does_not_revive", func(c checks) {
		name := fresh("set-nx")
		mine := c.mine.(*ofRedsync)
		mutex := mine.mutex(name, time.Second, redsync.WithSetNXOnExtend())
		must(mutex.TryLock() == nil, "a free lock was refused")
		must(sure(mutex.Extend()), "the extension was refused")
		time.Sleep(1500 * time.Millisecond)
		is, _ := mutex.Extend()
		must(!is, "an expired lock was extended")
	}},
	{"extend_with_0_keeps_the_lock", func(c checks) {
		name := fresh("zero")
		mutex := taken(c.mine, name, 20*time.Second)
		is, _ := c.mine.extend(mutex, 0)
		must(!is, "an extension by nothing succeeded")
		mustRefuse(c.other, name, "an extension by nothing set it free")
		mustRelease(c.mine, mutex)
	}},
	// The try ends after 1 ms, mostly before its answer; the client then releases what it may have.
	{"abandoned_try_leaves_nothing", func(c checks) {
		mine := c.mine.(*ofRedsync)
		for range 10 {
			name := fresh("abandoned")
			mutex := mine.mutex(name, 60*time.Second, redsync.WithTimeoutFactor(1.0/60_000))
			if mutex.TryLock() == nil {
				mustRelease(c.mine, mutex)
			}
			held, _ := grantedAfter(c.other, name, 20*time.Second, time.Now(), 5*time.Second)
			mustRelease(c.other, held)
		}
	}},
}

// bsm/redislock

type ofRedislock struct{ client *redislock.Client }

func redislockOf(port int) adapter { return ofRedislock{redislock.New(dial(port))} }

func (r ofRedislock) obtain(name string, ttl time.Duration, options *redislock.Options, limit time.Duration) (lock, error) {
	timed, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	held, err := r.client.Obtain(timed, name, ttl, options)
	if errors.Is(err, redislock.ErrNotObtained) || timed.Err() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return held, nil
}

func (r ofRedislock) take(name string, ttl time.Duration) (lock, error) {
	return r.obtain(name, ttl, nil, slack)
}

func (r ofRedislock) wait(name string, ttl, limit time.Duration) (lock, error) {
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
	return r.obtain(name, ttl, options, limit)
}

func (r ofRedislock) extend(held lock, ttl time.Duration) (bool, error) {
	err := held.(*redislock.Lock).Refresh(context.Background(), ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	}
	return err == nil, err
}

func (r ofRedislock) release(held lock) (bool, error) {
	err := held.(*redislock.Lock).Release(context.Background())
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return false, nil
	}
	return err == nil, err
}

func (r ofRedislock) forge(name string) lock {
	yes := &sayYes{Scripter: dial(port), isFirst: true}
	return sure(redislock.New(yes).Obtain(context.Background(), name, time.Minute, nil))
}

// sayYes grants the first script by itself; a lock can't be made otherwise.
type sayYes struct {
	redis.Scripter
	isFirst bool
}

func (s *sayYes) EvalSha(ctx context.Context, sha string, keys []string, values ...any) *redis.Cmd {
	if !s.isFirst {
		return s.Scripter.EvalSha(ctx, sha, keys, values...)
	}
	s.isFirst = false
	command := redis.NewCmd(ctx)
	command.SetVal("OK")
	return command
}

func (ofRedislock) over([]int) adapter { return nil }

var redislockChecks = []check{
	{"remaining_time_is_seen", func(c checks) {
		held := taken(c.mine, fresh("left"), 20*time.Second).(*redislock.Lock)
		left := sure(held.TTL(context.Background()))
		must(left > 10*time.Second && left <= 20*time.Second, "%v are left of 20 s", left)
		mustRelease(c.mine, held)
		must(sure(held.TTL(context.Background())) == 0, "time is left after the release")
	}},
	{"same_token_takes_over", func(c checks) {
		name, mine := fresh("take-over"), c.mine.(ofRedislock)
		before := &redislock.Options{Token: "0123456789", Metadata: "before"}
		after := &redislock.Options{Token: "0123456789", Metadata: "after"}
		other := &redislock.Options{Token: "9876543210", Metadata: "before"}
		first := sure(mine.obtain(name, 20*time.Second, before, slack))
		must(first != nil, "a free lock was refused")
		second := sure(mine.obtain(name, 20*time.Second, after, slack))
		must(second != nil, "its owner may not take it over")
		must(sure(mine.obtain(name, 20*time.Second, other, slack)) == nil, "another took it over")
		must(!sure(mine.release(first)), "the value before the take-over still releases it")
		mustRelease(c.mine, second)
	}},
	{"extend_with_0_keeps_the_lock", func(c checks) {
		name := fresh("zero")
		held := taken(c.mine, name, 20*time.Second)
		must(!sure(c.mine.extend(held, 0)), "an extension by nothing succeeded")
		mustRefuse(c.other, name, "an extension by nothing set it free")
		mustRelease(c.mine, held)
	}},
}
