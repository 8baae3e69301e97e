// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/driver"
)

const (
	// metricsLimit is how long hasp waits at its end for --metrics-file, on a disk that hangs. Its keys are released by then.
	metricsLimit = 30 * time.Second
	// lockLimit is how long a run waits for others that write there. Any process that may read the folder can lock it.
	lockLimit = time.Second
	// mostMetrics bounds what is read of the file: a key has 512 bytes, and several KEYs are one label.
	mostMetrics = 1 << 20
)

// The gauges of a job, as docs/command.md has them. Times are seconds since 1970.
const (
	lastStart = iota
	lastSuccess
	lastDuration
	lastExit
	lastWait
	lastLost
	lastBusy
	running
	gauges
)

var gaugeNames = [gauges]struct{ name, help string }{
	{"hasp_job_last_start_timestamp_seconds", "When the key was last acquired for the command."},
	{"hasp_job_last_success_timestamp_seconds", "When the command last ended with status 0, and the lock was not lost; by --once, on any host."},
	{"hasp_job_last_duration_seconds", "How long the command ran, when it last did."},
	{"hasp_job_last_exit_status", "What hasp run last exited with."},
	{"hasp_job_last_wait_seconds", "How long hasp run last waited for the key."},
	{"hasp_job_last_lost", "1 when the lock was lost in the last run."},
	{"hasp_job_last_busy", "1 when the last run gave up because the key was held."},
	{"hasp_job_running", "1 while the command of the run that started last works; it stays when hasp is killed with -9."},
}

// jobFigures are the gauges of a job; NaN: not known yet.
type jobFigures [gauges]float64

func noFigures() (f jobFigures) {
	for i := range f {
		f[i] = math.NaN()
	}
	return f
}

// after returns what the file says after a run, of which f is what is known by now. Another run of the same job may have
// written old meanwhile: times never go back, and what a later run says of its command stays.
func (f jobFigures) after(old jobFigures) jobFigures {
	later := old[lastStart] > f[lastStart]
	for i := range f {
		if math.IsNaN(f[i]) || later && (i == lastStart || i == lastDuration || i == running) || i == lastSuccess && old[i] > f[i] {
			f[i] = old[i]
		}
	}
	return f
}

// credible returns f without times of a clock that was ahead: they would outlast every later run.
func (f jobFigures) credible(now time.Time) jobFigures {
	for _, i := range []int{lastStart, lastSuccess} {
		if f[i] > stamp(now.Add(time.Minute)) {
			f[i] = math.NaN()
		}
	}
	return f
}

// jobLabel returns the labels of a job's gauges, escaped as Prometheus' text format wants it. The file tells jobs of one key apart:
// node_exporter drops one of two equal series.
func jobLabel(keys []string, path string) string {
	escaped := func(s string) string {
		if !utf8.ValidString(s) { // which Prometheus refuses, together with the rest of the file
			s = driver.Printable(s)
		}
		return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s)
	}
	return `{key="` + escaped(strings.Join(keys, ",")) + `",file="` + escaped(filepath.Base(path)) + `"} `
}

// text is the file of a job with such a label.
func (f jobFigures) text(label string) []byte {
	var b bytes.Buffer
	for i, g := range gaugeNames {
		if !math.IsNaN(f[i]) {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n%s%s%s\n", g.name, g.help, g.name, g.name, label, strconv.FormatFloat(f[i], 'f', -1, 64))
		}
	}
	return b.Bytes()
}

var errNotOurs = errors.New("the file is not of this job: name another file for each job, or remove it")

// parseFigures reads the file of a job with such a label. It refuses all else, which must not be overwritten.
func parseFigures(text, label string) (jobFigures, error) {
	f := noFigures()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "# HELP hasp_job_") || strings.HasPrefix(line, "# TYPE hasp_job_") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), label)
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || !strings.HasPrefix(name, "hasp_job_") {
			return f, errNotOurs
		}
		for i, g := range gaugeNames {
			if g.name == name {
				f[i] = v
			}
		}
	}
	return f, nil
}

// jobMetrics is the --metrics-file of a job. It is not safe for concurrent use, and writes in the background.
type jobMetrics struct {
	path, label string
	figures     jobFigures
	done        chan error // of the latest write
	ended       bool       // the end of the run was put: its keys may be kept after that
}

// put has the figures written, after those before them.
func (m *jobMetrics) put() {
	before, done, f := m.done, make(chan error, 1), m.figures
	m.done = done
	go func() {
		if before != nil {
			<-before //nolint:errcheck // that it failed, this write says too
		}
		done <- m.write(f)
	}()
}

// write replaces the file as a whole.
func (m *jobMetrics) write(f jobFigures) error {
	dir := filepath.Dir(m.path)
	if d, err := os.Open(dir); err == nil { // else the write says what is wrong
		defer d.Close()
		for end := time.Now().Add(lockLimit); !lockFolder(d) && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	old := noFigures()
	switch info, err := os.Lstat(m.path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case !info.Mode().IsRegular(): // opening it might hang, and a rename would replace a device
		return errors.New("it is not a regular file: name a file in the collector's folder")
	default:
		file, err := os.Open(m.path)
		if err != nil {
			return err
		}
		defer file.Close()
		text, err := io.ReadAll(io.LimitReader(file, mostMetrics))
		if err != nil {
			return err
		}
		if old, err = parseFigures(string(text), m.label); err != nil {
			return err
		}
	}
	m.sweep(dir)
	// The collector reads *.prom only.
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(m.path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(f.after(old.credible(time.Now())).text(m.label))
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), m.path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // what failed is reported
	}
	return err
}

// sweep removes what runs left that were killed while they wrote.
func (m *jobMetrics) sweep(dir string) {
	all, _ := os.ReadDir(dir) // what hinders us hinders the write, too
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), "."+filepath.Base(m.path)+".") || !strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(filepath.Join(dir, e.Name())) // the next run tries again
		}
	}
}

// stamp is a time as a gauge, in milliseconds' precision.
func stamp(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// measureStart writes that the command begins.
func (j *job) measureStart() {
	if m := j.metrics; m != nil {
		m.figures[lastStart], m.figures[running] = stamp(j.acquired), 1
		m.figures[lastWait] = j.acquired.Sub(j.wait.began).Seconds()
		m.put()
	}
}

// measureEnd has written how the run ended, once.
func (j *job) measureEnd(status *child.Status, exit *base.Exit) {
	m := j.metrics
	if m == nil || m.ended {
		return
	}
	m.ended = true
	lost := strings.HasPrefix(exit.Verdict, "lost")
	f := &m.figures
	f[lastExit], f[lastLost], f[lastBusy] = float64(exit.Code), flag(lost), flag(exit.Verdict == "busy")
	if began := j.wait.began; j.acquired.IsZero() && !began.IsZero() {
		f[lastWait] = time.Since(began).Seconds()
	}
	if !j.acquired.IsZero() {
		f[running] = 0
	}
	if !j.done.IsZero() { // else the hosts that come second would look late for ever
		f[lastSuccess] = stamp(j.done)
	}
	if status != nil {
		f[lastDuration] = j.worked.Seconds()
		if status.Exit() == 0 && !lost {
			f[lastSuccess] = stamp(j.acquired.Add(j.worked))
		}
	}
	m.put()
}

// measured waits until that is written, and warns when it fails: what counts is the command.
func (j *job) measured() {
	m := j.metrics
	if m == nil {
		return
	}
	err := j.finish(func() error {
		select {
		case err := <-m.done:
			return err
		case <-time.After(metricsLimit):
			return errReleaseUnanswered
		}
	})
	if errors.Is(err, errReleaseUnanswered) { // or a signal came meanwhile
		err = errors.New("the disk does not answer")
	}
	if err != nil {
		j.rep.say(problem, entry{Event: "metrics-failed", Error: err.Error(), Message: fmt.Sprintf("warning: the metrics are not written to %s: %v", base.Quote(m.path), err)})
	}
}
