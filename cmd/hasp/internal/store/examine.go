// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
)

// disk says when a file is on a disk that other machines may use, or of which each container has its own.
func disk(path string) []operator.Finding {
	dir := filepath.Dir(path)
	found := operator.Finding{Level: doctor.Warn, Check: "disk", FencesRepeat: true}
	switch kind := sharedDisk(dir); {
	case kind != "":
		found.Text = "the file is on " + kind + ", which other machines may use, too: " +
			"if two do, there can be two holders, and the file may break. Move it to a local disk, or take a server for locks"
	case layered(dir):
		found.Text = "the file is on overlayfs, as the root of a container is: it keeps apart the processes of this container alone. Another container has " +
			"another file at this path, and both can hold a key. Mount a folder of the host there (docker run -v DIR:DIR)"
	default:
		return nil
	}
	return []operator.Finding{found}
}

// pooler notices a pooler between this program and the server: what it says of the connection is not what the server says.
func (s *Store) pooler(ctx context.Context) []operator.Finding {
	c, err := s.opened.DB.Conn(ctx)
	if err != nil {
		return nil // the driver's own connections say why
	}
	defer c.Close() // it was only asked
	var known, said uint32
	err = c.Raw(func(c any) error {
		one := c.(*stdlib.Conn).Conn() //nolint:forcetypeassert // package dial made it
		known = one.PgConn().PID()
		return one.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&said)
	})
	if err != nil || said == known {
		return nil
	}
	return []operator.Finding{{Level: operator.LevelOK, Check: "pooler", Text: "there is a pooler of connections in between, which does locks no harm; " +
		"the handoff below says whether messages come through it"}}
}

// sentinels asks each Sentinel which master it knows, and whether they could promote another.
func (s *Store) sentinels(ctx context.Context, u *URL) []operator.Finding {
	master := u.Parts().Master
	answers := make([]operator.Finding, len(s.opened.Sentinels))
	masters := make([]string, len(answers))
	var asked sync.WaitGroup
	for i, one := range s.opened.Sentinels {
		asked.Go(func() {
			addr := one.Addr
			f := operator.Finding{Level: operator.LevelWarn, Check: "sentinel"}
			at, err := one.Client.GetMasterAddrByName(ctx, master).Result()
			if err == nil && len(at) == 2 {
				masters[i] = net.JoinHostPort(at[0], at[1])
				err = one.Client.CkQuorum(ctx, master).Err()
			}
			switch {
			case err == nil:
				f.Level, f.Text = operator.LevelOK, fmt.Sprintf("the Sentinel %s knows the master as %s, and enough of them to promote another", addr, masters[i])
			case masters[i] != "":
				f.Text = fmt.Sprintf("the Sentinel %s knows the master as %s, but if that dies, none is promoted: %s", addr, masters[i], doctor.Said(err))
			case errors.Is(err, redis.Nil):
				f.Text = fmt.Sprintf("the Sentinel %s knows no master by the name %s: have it monitor that, or leave it out of the store's URL", addr, master)
			case s.Classify(err) == driver.ClassLogin:
				f.Text = fmt.Sprintf("the Sentinel %s refused the login: %s. %s", addr, plain.Error(err), checkSentinels)
			default:
				f.Text = fmt.Sprintf("the Sentinel %s %s", addr, u.Unserved(addr, err))
			}
			answers[i] = f
		})
	}
	asked.Wait()
	found := slices.Clone(answers)
	masters = slices.DeleteFunc(masters, func(m string) bool { return m == "" })
	slices.Sort(masters)
	if masters = slices.Compact(masters); len(masters) > 1 {
		found = append(found, operator.Finding{Level: operator.LevelWarn, Check: "sentinel", Text: fmt.Sprintf("the Sentinels know different masters (%s): while "+
			"clients use both, there can be two holders. A failover takes seconds; if this stays, some of them watch another master", strings.Join(masters, ", "))})
	}
	return found
}

// master asks the Sentinels for the address of the master; "": none of them said it.
func (s *Store) master(ctx context.Context, name string) string {
	for _, one := range s.opened.Sentinels {
		if at, err := one.Client.GetMasterAddrByName(ctx, name).Result(); err == nil && len(at) == 2 {
			return net.JoinHostPort(at[0], at[1])
		}
	}
	return ""
}
