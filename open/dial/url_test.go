// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/expect"
)

var must = expect.Need

func TestParse(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]struct {
		shown    string
		ttl      time.Duration
		prefix   string
		noPrefix bool
		secret   bool
		maxTTL   time.Duration
		redisson string // the kind
		watchdog time.Duration
	}{
		"sqlite:/a/b.db":                           {shown: "sqlite:/a/b.db"},
		"sqlite:b.db":                              {shown: "sqlite:" + here + "/b.db"},
		"sqlite:///a/b.db?ttl=1m":                  {shown: "sqlite:/a/b.db", ttl: time.Minute},
		"SQLITE:a%3Fb%25":                          {shown: "sqlite:" + here + "/a?b%"},
		"sqlite:a#b c":                             {shown: "sqlite:" + here + "/a#b c"},
		"redis://localhost":                        {shown: "redis://localhost:6379/0"},
		"redis://":                                 {shown: "redis://localhost:6379/0"},
		"redis://h:1/2?ttl=5s&prefix=a:":           {shown: "redis://h:1/2", ttl: 5 * time.Second, prefix: "a:"},
		"redis://h?db=3&prefix=":                   {shown: "redis://h:6379/3", noPrefix: true},
		"redis://h/3?db=3":                         {shown: "redis://h:6379/3"},
		"redis://:secret@h":                        {shown: "redis://h:6379/0", secret: true},
		"redis://user:se%40cret@h":                 {shown: "redis://h:6379/0", secret: true},
		"redis://[::1]:7":                          {shown: "redis://[::1]:7/0"},
		"rediss://h":                               {shown: "rediss://h:6379/0"},
		"REDISS://h":                               {shown: "rediss://h:6379/0"},
		"unix:///run/redis.sock":                   {shown: "unix:///run/redis.sock?db=0"},
		"unix://user:secret@/run/redis.sock?db=12": {shown: "unix:///run/redis.sock?db=12", secret: true},
		"redis://h?max-ttl=1m":                     {shown: "redis://h:6379/0", maxTTL: time.Minute},
		"redlock://a,b,c":                          {shown: "redlock://a:6379,b:6379,c:6379/0", maxTTL: 30 * time.Second},
		"redlocks://a:1,b:2,[::1]:3/4?ttl=5s&max-ttl=5s&prefix=p:": {
			shown: "redlocks://a:1,b:2,[::1]:3/4", ttl: 5 * time.Second, prefix: "p:", maxTTL: 5 * time.Second},
		"redis+sentinel://mymaster@a,b:1,[::1]":                {shown: "redis+sentinel://mymaster@a:26379,b:1,[::1]:26379/0"},
		"redis+sentinel://my%20m:se%3Acret@a/3?user=me&ttl=1m": {shown: "redis+sentinel://my%20m@a:26379/3", secret: true, ttl: time.Minute},
		"rediss+sentinel://m@a?sentinel-password=secret":       {shown: "rediss+sentinel://m@a:26379/0", secret: true},
		"redis+sentinel://m@a?max-ttl=1m&prefix=":              {shown: "redis+sentinel://m@a:26379/0", maxTTL: time.Minute, noPrefix: true},
		"redis+cluster://a,b:1?prefix=p:&replicas=1":           {shown: "redis+cluster://a:6379,b:1", prefix: "p:"},
		"rediss+cluster://:secret@a/0":                         {shown: "rediss+cluster://a:6379", secret: true},
		"redis+cluster://me:secret@a":                          {shown: "redis+cluster://a:6379", secret: true},
		"redis://h?layout=redisson":                            {shown: "redis://h:6379/0", redisson: "lock"},
		"rediss://h/2?kind=fair&layout=redisson&ttl=5s":        {shown: "rediss://h:6379/2", redisson: "fair", ttl: 5 * time.Second},
		"unix:///s?layout=redisson&kind=fenced&prefix=a:":      {shown: "unix:///s?db=0", redisson: "fenced", prefix: "a:"},
		"redis+sentinel://m@a?layout=redisson&kind=readwrite":  {shown: "redis+sentinel://m@a:26379/0", redisson: "readwrite"},
		"redis+cluster://a?layout=redisson&kind=readwrite&lock-watchdog-timeout=1m&ttl=1m": {
			shown: "redis+cluster://a:6379", redisson: "readwrite", ttl: time.Minute, watchdog: time.Minute},
		"rediss+cluster://a?layout=redisson&kind=lock&tls-ca=/x": {shown: "rediss+cluster://a:6379", redisson: "lock"},
		"RedLock://me:se,cr@et@a,b,c,d:9,e?prefix=": {
			shown: "redlock://a:6379,b:6379,c:6379,d:9,e:6379/0", noPrefix: true, secret: true, maxTTL: 30 * time.Second},
	} {
		u, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		r := &redisServers{}
		switch p := u.place.(type) {
		case *redisServers:
			r = p
		case *redisGroup:
			r.redisKeys = p.redisKeys
		}
		if kind := r.kind.String(); r.redisson != (want.redisson != "") || r.redisson && kind != want.redisson {
			t.Errorf("%s: Redisson %v, %s, want %q", text, r.redisson, kind, want.redisson)
		}
		if u.String() != want.shown || u.TTL != want.ttl || r.prefix != want.prefix || r.noPrefix != want.noPrefix || r.maxTTL != want.maxTTL || r.watchdog != want.watchdog || u.Secret() != want.secret {
			t.Errorf("%s: %s %+v, want %+v", text, u, u, want)
		}
		for _, o := range r.nodes {
			if o.Password != r.nodes[0].Password || o.Username != r.nodes[0].Username || o.DB != r.nodes[0].DB {
				t.Errorf("%s: %s and %s differ in more than their address", text, r.nodes[0].Addr, o.Addr)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "no scheme",
		"locks.db":                 "did you mean sqlite:locks.db?",
		"hunter2":                  "no scheme",
		"consul://h":               `"consul:"`,
		"hunter2@h:1":              "a scheme that hasp does not know",
		"user:hunter2@h:1":         "a scheme that hasp does not know",
		"sqlite:":                  "is missing",
		"sqlite::memory:":          "keeps no other process away",
		"sqlite:a%zz":              "%25",
		"sqlite:a%00b":             "NUL",
		"sqlite://host/a":          "a path",
		"sqlite:a?ttl=5":           "positive duration",
		"sqlite:a?ttl=-5s":         "positive duration",
		"sqlite:a?ttl=1s&ttl=2s":   "more than once",
		"sqlite:a?prefix=b":        `"prefix": known here are ttl`,
		"redis:h":                  "cannot be read",
		"redis:/h":                 "cannot be read",
		"localhost:6379":           "has no scheme (redis:, sqlite: or another): did you mean redis://localhost:6379?",
		"localhost":                "did you mean redis://localhost:6379?",
		"10.0.0.7":                 "did you mean redis://10.0.0.7:6379?",
		"cache.internal:6380":      "did you mean redis://cache.internal:6380?",
		"redis:6379":               "did you mean redis://redis:6379?",
		"redis:localhost:6379":     "did you mean redis://localhost:6379?",
		"rediss:/10.0.0.7":         "did you mean rediss://10.0.0.7:6379?",
		"/var/lib/locks.db":        "did you mean sqlite:/var/lib/locks.db?",
		"./locks":                  "did you mean sqlite:./locks?",
		"user:hunter2":             `"user:", which hasp does not know`,
		"http://h:6379":            `"http:"`,
		"redis://h:port":           "the port in the store's URL is not a number from 1 to 65535",
		"redis://h:0":              "the port in",
		"redis://h:65536/1":        "the port in",
		"redis://[::1]:x":          "the port in",
		"redis://user:hunter2":     "the port in",
		"redis://:hunter2@h:x":     "the port in",
		"redis://hunter2@h":        "without a password",
		"redis://:hun#ter2@h":      "cannot be read",
		"redis://u:hunter2@h#":     "%23",
		"redis://h/one":            "not a number",
		"redis://h/1/2":            "not a number",
		"redis://h/-1":             "not a number",
		"redis://h/1?db=2":         "two databases",
		"redis://h?read_timeout=1": `"read_timeout"`,
		"redis://:hun?ter2=x@h":    "cannot be read",
		"redis://h?a=%zz":          "parameters",
		"unix://run/redis.sock":    "whole path",
		"unix://":                  "whole path",

		"redis://h?max-ttl=5":                        "at least 1s",
		"redis://h?max-ttl=0.5s":                     "at least 1s",
		"redis://h?max-ttl=5s&ttl=6s":                "ttl=6s in the store's URL is longer than max-ttl=5s",
		"sqlite:a?max-ttl=5s":                        "known here are ttl",
		"redis+sentinel://a,b":                       "how the Sentinels call the master: redis+sentinel://NAME@",
		"redis+sentinel://m@":                        "host 1 in",
		"redis+sentinel://m@a/x":                     "not a number",
		"redis+sentinel://m@a?user=hunter2":          "user= in the store's URL needs a password",
		"redis+sentinel://m@a?replicas=-1":           "replicas=",
		"redis+sentinel://m@a?replicas=1&max-ttl=1s": "Choose one of them",
		"redis+sentinel://m@a?tls-ca=/x":             "not known",
		"redis+sentinel://m@a?ttl=31s&max-ttl=30s":   "longer than max-ttl=30s",
		"redis+cluster://hunter2@a":                  "without a password",
		"redis+cluster://a/1":                        "only database 0",
		"redis+cluster://a?max-ttl=1s":               "not known",
		"redis+cluster:a":                            "after redis+cluster: come //",
		"redlock://a,b,c?replicas=1":                 "Choose one of them",
		"mysql://:hunter2@h/db":                      "a password without a user",
		"redlock:a,b,c":                              "redlock://HOST1,HOST2,HOST3",
		"redlock://":                                 "host 1 in the store's URL is empty",
		"redlock://a,,c":                             "host 2 in the store's URL is empty",
		"redlock://a":                                "is 1: a lock that is held on a majority takes 3, 5 or 7",
		"redlock://a,b":                              "is 2: a lock that is held on a majority takes 3, 5 or 7",
		"redlock://a,b,c,d":                          "is 4: 4 survive as many failures as 3, and one more can fail; name 3 or 5",
		"redlock://a,b,c,d,e,f,g,h,i":                "is 9",
		"redlock://a,b:6379,c,b,d":                   "names b:6379 twice",
		"redlock://a,b,c?ttl=31s":                    "longer than max-ttl=30s",
		"redlock://a,b:port,c":                       "the port in",
		"redlock://u:hunter2@a,b,c,d":                "name 3 or 5",
		"redlock://hunter2@a,b,c":                    "without a password",
		"redlock://u:hun#ter2@a,b,c":                 "cannot be read",
		"redlock://u:hun?ter2@a,b,c":                 "cannot be read",
		"redlock://u:hun/ter2@a,b,c":                 "cannot be read",
		"redlock://u:1?hunter2@a,b,c":                "a parameter that is not known",
		"redlock://u:1/hunter2@a,b,c":                "not a number",
		"redlock://a,u:hunter2,b/c@d":                "not a number",

		"redis://h?layout=":                                                          "layout= in the store's URL is none",
		"redis://h?layout=hunter2":                                                   "layout= in the store's URL is none",
		"redis://h?kind=fair":                                                        "needs layout=redisson",
		"redis://h?layout=redisson&kind=":                                            "none of Redisson's locks",
		"redis://h?layout=redisson&kind=hunter2":                                     "none of Redisson's locks",
		"redis://h?layout=redisson&max-ttl=5s":                                       "every client compares its record",
		"redis://h?layout=redisson&replicas=1":                                       "every client waits for the replicas",
		"redis+sentinel://m@a?layout=redisson&max-ttl=1m":                            "every client compares its record",
		"redis+sentinel://m@a?layout=redisson&replicas=2":                            "every client waits for the replicas",
		"redis+cluster://a?layout=redisson&replicas=1":                               "every client waits for the replicas",
		"redis+cluster://a?kind=lock":                                                "needs layout=redisson",
		"redis+cluster://a?layout=redisson&kind=readwrite&ttl=31s":                   "longer than 30s, Redisson's lockWatchdogTimeout",
		"redis+sentinel://m@a?layout=redisson&kind=readwrite&lock-watchdog-timeout=": "is not a duration of at least 1s",
		"redis://h?layout=redisson&lock-watchdog-timeout=1m":                         "not those of kind=readwrite",
		"redis+cluster://a?lock-watchdog-timeout=1m":                                 "needs layout=redisson&kind=readwrite",
		"redlock://a,b,c?layout=redisson":                                            "RedissonRedLock",
		"redlock://a,b,c?kind=lock":                                                  "needs layout=redisson",
		"sqlite:a?layout=redisson":                                                   "known here are ttl",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want something about %q", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ter2")) {
			t.Errorf("%s: the error shows the password: %v", text, err)
		}
	}
}

// No URL makes the parser panic; no error and no text of a URL has its password
// in it, wherever in the URL that ended up.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"redis://u:%s@h:1/2?ttl=5s&prefix=a", "rediss://:%s@h", "redis://%s@h", "unix://u:%s@/s?db=1", "sqlite:a?ttl=%s",
		"redis://h?%s=x", "redis://h/%s", "%s://h", "%s", "redis://h:%s", "redis://u:a?%s=b@h", "redis://u:a#%s@h", "redis://u:a/%s@h",
		"redlock://u:%s@a,b,c?max-ttl=5s", "redlock://%s@a,b", "redlocks://u:%s@a,b,c,d/1", "redlock://u:a?%s@a,b,c", "redlock://u:a,%s@a,a,c",
		"redis+sentinel://m:%s@a,b/1?user=u", "redis+sentinel://m@a?sentinel-password=%s", "redis+cluster://u:%s@a,b", "rediss+cluster://:%s@a"} {
		f.Add(s, "hunter22")
		f.Add(s, "p:w?a=b#c/d@%41")
	}
	f.Fuzz(func(t *testing.T, form, password string) {
		u, err := Parse(strings.Replace(form, "%s", password, 1))
		// A password that is short, or part of our own texts, proves nothing.
		if len(password) < 6 || strings.Contains(Forms, password) {
			return
		}
		at := strings.Index(form, "%s")
		inUser := at >= 0 && strings.Contains(form[at:], "@") && strings.Contains(form[:at], "://") && !strings.ContainsAny(form[:at], "@")
		if !inUser {
			return
		}
		if err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("%q with %q: the error has it: %v", form, password, err)
		}
		if err != nil {
			return
		}
		r, redis := u.place.(*redisServers)
		if redis && u.Secret() && r.nodes[0].Password == password && strings.Contains(u.String(), password) &&
			!strings.Contains(strings.Join(r.names(), ","), password) {
			t.Errorf("%q with %q: the text has it: %s", form, password, u)
		}
	})
}
