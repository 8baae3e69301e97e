// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/hasplock/hasp"
)

// store is a store whose answers take a while.
type store struct {
	t     *testing.T
	delay time.Duration

	mu        *sync.Mutex
	infos     []hasp.Info
	err       error
	lists     []time.Time
	inspected []string
	rounds    int // under way
	broken    []Target
}

// wait is a question that takes its time. No two lists, and no list and an Inspect, overlap.
func (s *store) wait(ctx context.Context, list bool) error {
	s.mu.Lock()
	if list {
		if s.rounds > 0 {
			s.t.Errorf("a list began while %d questions were under way", s.rounds)
		}
		s.lists = append(s.lists, time.Now())
	}
	s.rounds++
	delay := s.delay
	s.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds--
	return s.err
}

func (s *store) List(ctx context.Context) ([]hasp.Info, error) {
	err := s.wait(ctx, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.infos, err
}

func (s *store) Inspect(ctx context.Context, key string) (hasp.Info, error) {
	s.mu.Lock()
	s.inspected = append(s.inspected, key)
	s.mu.Unlock()
	return looked(key), s.wait(ctx, false)
}

func (s *store) Plan(_ context.Context, t Target) (string, error) { return "plan for " + t.Owner, nil }

func (s *store) Break(_ context.Context, t Target) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, t)
	return "broke it", nil
}

func (s *store) Hopeless(err error) bool { return errors.Is(err, os.ErrPermission) }

// set changes the store, or the terminal.
func (s *store) set(change func()) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// asked returns when it was asked for a list, and for which keys since the last time.
func (s *store) asked() (lists []time.Time, keys []string) {
	s.set(func() {
		lists, keys = slices.Clone(s.lists), slices.Sorted(slices.Values(s.inspected))
		s.inspected = nil
	})
	return lists, keys
}

// paper is a terminal that shows the latest screen.
type paper struct {
	mu   *sync.Mutex
	text string
}

func (p *paper) shows(t *testing.T, words ...string) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range words {
		if !strings.Contains(p.text, w) {
			t.Errorf("at %v it does not show %q:\n%s", time.Now(), w, p.text)
		}
	}
}

// running is an App in a bubble, in which nothing takes time but the store. Its loop is that of Bubble Tea, in short.
type running struct {
	*store
	*paper
	app  *App
	msgs chan tea.Msg
	done chan error
}

// do carries out a command.
func (r *running) do(ctx context.Context, cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	go func() {
		msg := cmd()
		if all, ok := msg.(tea.BatchMsg); ok {
			for _, one := range all {
				r.do(ctx, one)
			}
		} else if msg != nil {
			select {
			case r.msgs <- msg:
			case <-ctx.Done():
			}
		}
	}()
}

func (r *running) loop(ctx context.Context, a *App) error {
	r.do(ctx, a.Init())
	for msg := range r.msgs {
		if _, ok := msg.(tea.QuitMsg); ok {
			return a.Err
		}
		_, cmd := a.Update(msg)
		r.do(ctx, cmd)
		text := a.View().Content
		r.store.mu.Lock()
		r.text = text
		r.store.mu.Unlock()
	}
	return nil
}

func run(t *testing.T, test func(r *running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mu, was := new(sync.Mutex), start
		defer func() { start = was }()
		r := &running{&store{t: t, mu: mu}, &paper{mu: mu}, nil, make(chan tea.Msg), make(chan error, 1)}
		start = time.Now()
		r.infos = infos()
		ctx, cancel := context.WithCancel(t.Context())
		a := &App{Model: &Model{Store: "memory", Every: 2 * time.Second}, Locks: r.store, Context: ctx}
		r.app = a
		go func() {
			r.done <- r.loop(ctx, a)
			cancel()
		}()
		r.msgs <- tea.WindowSizeMsg{Width: 80, Height: 24}
		test(r)
		time.Sleep(time.Hour) // for timers of which nobody hears any more
		synctest.Wait()       // for the looks that the loop had begun: they read start
	})
}

func (r *running) press(words ...string) {
	for _, k := range typed(words...) {
		r.msgs <- k
		synctest.Wait()
	}
}

func (r *running) quit(t *testing.T) {
	t.Helper()
	r.press("q")
	if err := <-r.done; err != nil {
		t.Error(err)
	}
}

// It asks every 2 s, counted from the answer; of the keys only those on the screen that others wait for, or that several hold.
func TestRounds(t *testing.T) {
	run(t, func(r *running) {
		r.shows(t, "7 keys, 3 waited for", "1m30s")
		if _, keys := r.asked(); !slices.Equal(keys, []string{"gpu", "orders/1", "reports", "waited"}) {
			t.Errorf("it asked for %q", keys)
		}
		r.press("s") // by key
		time.Sleep(5 * time.Second)
		lists, _ := r.asked()
		if len(lists) != 3 || lists[2].Sub(lists[0]) != 4*time.Second {
			t.Errorf("it asked at %v", lists)
		}
		r.msgs <- tea.WindowSizeMsg{Width: 80, Height: 4}
		time.Sleep(2 * time.Second)
		if _, keys := r.asked(); !slices.Equal(keys, []string{"gpu"}) {
			t.Errorf("with room for two keys it asked for %q", keys)
		}
		r.press("end")
		lists, keys := r.asked()
		if !slices.Equal(keys, []string{"reports", "waited"}) {
			t.Errorf("with other keys on the screen it asked for %q", keys)
		}
		for range 200 { // who scrolls does not keep the list from being asked for
			r.press("up", "down")
			time.Sleep(50 * time.Millisecond)
		}
		if after, _ := r.asked(); len(after)-len(lists) != 5 {
			t.Errorf("in 10 s of scrolling it asked %d times", len(after)-len(lists))
		}
		r.quit(t)
	})
}

// A slow store is asked less often, and leaves the latest list on the screen, with its age.
func TestSlowStore(t *testing.T) {
	run(t, func(r *running) {
		r.set(func() { r.delay = 10 * time.Second })
		time.Sleep(11 * time.Second)
		r.shows(t, "7 keys", "(11s old)", "orders/1")
		time.Sleep(2 * time.Minute)
		lists, _ := r.asked()
		for n := 2; n < len(lists); n++ { // list, then Inspects: 20 s, and three times that for others
			if gap := lists[n].Sub(lists[n-1]); gap < 60*time.Second {
				t.Errorf("it asked again after %v", gap)
			}
		}
		r.set(func() { r.delay, r.err = 0, errors.New("no answer within 5s") })
		time.Sleep(80 * time.Second)
		r.shows(t, "no answer within 5s", "old)", "orders/1")
		r.set(func() { r.err = nil })
		time.Sleep(3 * time.Second)
		r.shows(t, "7 keys", "sorted by waiters")
		r.quit(t)
	})
}

// A break is of the owner that was shown, whoever has the key by then.
func TestBreakIsOfWhomWasShown(t *testing.T) {
	run(t, func(r *running) {
		r.press("/", "orders/1", "enter", "b")
		owner := person("web-3", 4121, 0, "").Owner
		r.shows(t, "plan for "+owner, "reason (may be empty)")
		r.press("stuck")
		r.set(func() {
			i := slices.IndexFunc(r.infos, func(i hasp.Info) bool { return i.Key == "orders/1" })
			r.infos[i].Holder = person("web-9", 1, 0, "the successor")
		})
		time.Sleep(3 * time.Second)
		r.press("enter")
		r.shows(t, "Break it? y/N")
		r.press("y")
		r.shows(t, "broke it", "web-9")
		if want := (Target{Key: "orders/1", Owner: owner, Who: "web-3 (pid 4121, user app)", Plan: "plan for " + owner, Reason: "stuck"}); !slices.Equal(r.broken, []Target{want}) {
			t.Errorf("it broke %+v, want %+v", r.broken, want)
		}
		r.quit(t)
	})
}

func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(r *running)
		want string
	}{
		"by a signal":           {func(r *running) { r.msgs <- &Ended{syscall.SIGTERM} }, "ended by terminated"},
		"by Ctrl-C":             {func(r *running) { r.msgs <- tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl} }, "ended by interrupt"},
		"by Ctrl-\\":            {func(r *running) { r.msgs <- tea.KeyPressMsg{Code: '\\', Mod: tea.ModCtrl} }, "ended by quit"},
		"when it has no rights": {func(r *running) { r.set(func() { r.err = os.ErrPermission }); time.Sleep(3 * time.Second) }, os.ErrPermission.Error()},
		"while the store hangs": {func(r *running) {
			r.set(func() { r.delay = time.Hour })
			time.Sleep(3 * time.Second)
			r.msgs <- &Ended{os.Interrupt}
		}, "ended by interrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *running) {
				c.do(r)
				if err := <-r.done; err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("it ended with %v", err)
				}
			})
		})
	}
}

// A terminal that grew shows more.
func TestResize(t *testing.T) {
	run(t, func(r *running) {
		r.msgs <- tea.WindowSizeMsg{Width: 80, Height: 3}
		r.press("down")
		r.msgs <- tea.WindowSizeMsg{Width: 80, Height: 13}
		r.shows(t, "orders/1", "waited", "q quit")
		r.quit(t)
	})
}

// typed are the messages of keys by their names, or of text.
func typed(words ...string) (all []tea.Msg) {
	named := map[Code]rune{Enter: tea.KeyEnter, Escape: tea.KeyEscape, Up: tea.KeyUp, Down: tea.KeyDown, End: tea.KeyEnd, PageDown: tea.KeyPgDown, Backspace: tea.KeyBackspace}
	for _, k := range keys(words...) {
		if code, ok := named[k.Code]; ok {
			all = append(all, tea.KeyPressMsg{Code: code})
		} else {
			all = append(all, tea.KeyPressMsg{Code: []rune(k.Text)[0], Text: k.Text})
		}
	}
	return all
}

// faulty is a store with a bug: in Inspect, or in List.
type faulty struct {
	*store
	look bool
}

func (f faulty) List(context.Context) ([]hasp.Info, error) {
	if !f.look {
		panic("a bug")
	}
	return infos(), nil
}

func (f faulty) Inspect(context.Context, string) (hasp.Info, error) { panic("a bug") }

// program is Bubble Tea's, without a terminal.
func program(a *App) *tea.Program {
	return tea.NewProgram(a, tea.WithInput(nil), tea.WithOutput(io.Discard), tea.WithoutSignalHandler(), tea.WithWindowSize(80, 24))
}

// A bug in a question, of the list or of a key, ends the program, and the terminal is as it was.
func TestPanicOfALook(t *testing.T) {
	for name, look := range map[string]bool{"list": false, "key": true} {
		t.Run(name, func(t *testing.T) {
			a := &App{Model: &Model{}, Locks: faulty{&store{t: t, mu: new(sync.Mutex)}, look}, Context: t.Context()}
			if _, err := program(a).Run(); !errors.Is(err, tea.ErrProgramPanic) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// SIGTSTP during a stop is no second stop, which would wait for a terminal that the first has; after it, it is.
func TestStopsOnce(t *testing.T) {
	run(t, func(r *running) {
		begun, goOn := make(chan struct{}, 3), make(chan struct{})
		r.app.Stop = func() { begun <- struct{}{}; <-goOn }
		for range 3 {
			r.msgs <- Stopped{}
		}
		synctest.Wait()
		if len(begun) != 1 {
			t.Errorf("it was stopped %d times at once", len(begun))
		}
		goOn <- struct{}{}
		synctest.Wait()
		r.msgs <- Stopped{}
		goOn <- struct{}{}
		if len(begun) != 2 {
			t.Errorf("it was stopped %d times, one after the other", len(begun))
		}
		r.quit(t)
	})
}

// The list may come before the terminal has said how large it is, and keys, too.
func TestBeforeItsSize(t *testing.T) {
	a := &App{Model: model(), Locks: &store{t: t, mu: new(sync.Mutex), infos: infos()}, Context: t.Context()}
	for _, msg := range append(typed("b", "enter"), a.list()()) {
		a.Update(msg)
		if text := a.View().Content; text != "" {
			t.Errorf("it shows %q", text)
		}
	}
	a.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	if text := a.View().Content; !strings.Contains(text, "sorted by waiters") {
		t.Errorf("then it shows %q", text)
	}
}
