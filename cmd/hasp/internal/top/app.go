// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/hasplock/hasp"
)

// Locks is the store, as hasp top asks it. The text of an error is for people, and safe
// to print.
type Locks interface {
	// List returns all keys, sorted.
	List(ctx context.Context) ([]hasp.Info, error)
	// Inspect returns all about a key.
	Inspect(ctx context.Context, key string) (hasp.Info, error)
	// Plan says what breaking a target would do.
	Plan(ctx context.Context, t Target) (string, error)
	// Break breaks exactly the target, and says what it did.
	Break(ctx context.Context, t Target) (string, error)
	// Hopeless says of an error of List that asking again does not help.
	Hopeless(err error) bool
}

const (
	atOnce = 8 // Inspects
	tick   = time.Second
	// gentle is how many times longer than its questions to the store took, at least, hasp top
	// lets it be.
	gentle = 3
)

// App is a run of hasp top, as Bubble Tea carries it out.
type App struct {
	Model   *Model
	Locks   Locks
	Context context.Context // of the questions
	Styled  bool
	// Stop stops the process, as Ctrl-Z does, until it has the terminal again.
	Stop func()

	// Err is why it ended: an *Ended, or a hopeless store. nil: by q.
	Err error

	keyboard      keyboard
	width, height int           // 0: not known yet
	stopping      bool          // Stop runs
	busy          bool          // a list or Inspects are under way
	asked         time.Time     // since when
	took          time.Duration // what the round's questions did until now
	listed        time.Time     // when the list came
	next          int           // the number of the timer that begins it
}

// Ended is the end by a signal, and a message that ends an App.
type Ended struct{ Signal os.Signal }

func (e *Ended) Error() string { return "ended by " + e.Signal.String() }

// Stopped is a message that stops the process, unless it is being stopped already.
type Stopped struct{}

type (
	resumed struct{}       // Stop has returned
	answer  func() tea.Cmd // what a question came to, for the model
	timer   int            // the next list is due
	second  struct{}       // ages are another now
)

// Init asks for the first list.
func (a *App) Init() tea.Cmd { return tea.Batch(a.list(), everySecond()) }

func everySecond() tea.Cmd { return tea.Tick(tick, func(time.Time) tea.Msg { return second{} }) }

// View is what the terminal shows now.
func (a *App) View() tea.View {
	v := tea.View{AltScreen: true}
	if a.height > 0 {
		v.Content = Draw(a.Model.View(a.width, a.height, time.Now()), a.width, a.height, a.Styled)
	}
	return v
}

// Update acts on a message.
func (a *App) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		a.width, a.height = msg.Width, msg.Height
		return a, a.look()
	case answer:
		return a, msg()
	case timer:
		if int(msg) == a.next && !a.busy {
			return a, a.list()
		}
		return a, nil
	case second:
		return a, everySecond()
	case *Ended:
		a.Err = msg
		return a, tea.Quit
	case Stopped:
		if a.stopping {
			return a, nil
		}
		a.stopping = true
		return a, func() tea.Msg { a.Stop(); return resumed{} }
	case resumed:
		a.stopping = false
		return a, nil
	case tea.KeyPressMsg:
		switch msg.Keystroke() { // what a terminal in raw mode leaves to its program
		case "ctrl+c":
			return a.Update(&Ended{os.Interrupt})
		case "ctrl+\\":
			return a.Update(&Ended{syscall.SIGQUIT})
		case "ctrl+z":
			return a.Update(Stopped{})
		}
	}
	if a.height == 0 {
		return a, nil
	}
	var cmds []tea.Cmd
	for _, k := range a.keyboard.keys(msg) {
		cmds = append(cmds, a.press(k), a.look())
	}
	return a, tea.Batch(cmds...)
}

// list begins a round: the list, and then what more is to be known of the keys on the
// screen. There is one at a time.
func (a *App) list() tea.Cmd {
	a.busy, a.asked, a.took = true, time.Now(), 0
	return func() tea.Msg {
		infos, err := a.Locks.List(a.Context)
		all := Prepare(infos)
		return answer(func() tea.Cmd {
			switch {
			case err == nil:
				a.Model.SetList(all, time.Now())
			case a.Locks.Hopeless(err):
				a.Err = err
				return tea.Quit
			default:
				a.Model.SetTrouble(err.Error(), time.Now())
			}
			a.listed = time.Now()
			return a.answered()
		})
	}
}

// answered asks for what has come onto the screen meanwhile, or lets the store be until the next
// round.
func (a *App) answered() tea.Cmd {
	a.took += time.Since(a.asked)
	a.busy = false
	if more := a.look(); a.busy {
		return more
	}
	return a.later(time.Until(a.listed.Add(max(a.Model.Every, gentle*a.took))))
}

// later asks for the list after so long, and not before.
func (a *App) later(wait time.Duration) tea.Cmd {
	a.next++
	n := timer(a.next)
	return tea.Tick(wait, func(time.Time) tea.Msg { return n })
}

// look asks for the keys on the screen, unless the store is being asked already.
func (a *App) look() tea.Cmd {
	if a.busy || a.height == 0 {
		return nil
	}
	keys := a.Model.Wanted(a.width, a.height)
	if len(keys) == 0 {
		return nil
	}
	a.next++
	a.busy, a.asked = true, time.Now()
	return func() tea.Msg {
		looks := a.inspect(keys)
		return answer(func() tea.Cmd {
			a.Model.SetLooks(looks)
			return a.answered()
		})
	}
}

// inspect asks for some keys at once. A panic of a question is that of its caller, which Bubble Tea watches.
func (a *App) inspect(keys []string) map[string]Look {
	looks := make(map[string]Look, len(keys))
	todo := make(chan string, len(keys))
	for _, key := range keys {
		todo <- key
	}
	close(todo)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var raised any
	for range min(atOnce, len(keys)) {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					mu.Lock()
					defer mu.Unlock()
					raised = fmt.Sprintf("%v\n%s", p, debug.Stack())
				}
			}()
			for key := range todo {
				var look Look
				info, err := a.Locks.Inspect(a.Context, key)
				if look.Info = info; err != nil {
					look.Trouble = err.Error()
				}
				mu.Lock()
				looks[key] = look
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if raised != nil {
		panic(raised)
	}
	return looks
}

// press acts on a key.
func (a *App) press(k Key) tea.Cmd {
	act := a.Model.Press(k, a.width, a.height)
	switch act {
	case Quit:
		return tea.Quit
	case Plan, Break:
	default:
		return nil
	}
	target := a.Model.Target()
	t := *target
	return func() tea.Msg {
		var text, trouble string
		var err error
		if act == Plan {
			text, err = a.Locks.Plan(a.Context, t)
		} else {
			text, err = a.Locks.Break(a.Context, t)
		}
		if err != nil {
			text, trouble = err.Error(), err.Error()
		}
		return answer(func() tea.Cmd {
			if act == Plan {
				a.Model.Planned(target, text, trouble)
				return nil
			}
			if a.Model.Broke(text); a.busy { // its list may be from before
				return nil
			}
			return a.later(0)
		})
	}
}
