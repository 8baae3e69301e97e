// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hasplock/hasp/cmd/hasp/internal/store"
)

// environment is the command's: ours, with variables about the locks and the store.
// Those of an outer hasp are removed, except for the owners of the leases around us.
func (j *job) environment(leases []leaseJSON) []string {
	var env []string
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !ours(name) {
			env = append(env, v)
		}
	}
	abandoned := false
	for i, lease := range leases {
		number := "_" + strconv.Itoa(i+1) + "="
		set := func(name, value string) {
			if i == 0 {
				env = append(env, name+"="+value)
			}
			env = append(env, name+number+value)
		}
		set("HASP_KEY", lease.Key)
		set("HASP_OWNER", lease.Owner)
		if j.from.Traits().Fencing {
			set("HASP_FENCE", strconv.FormatUint(lease.Fence, 10))
		}
		if lease.Slot != nil {
			set("HASP_SLOT", strconv.Itoa(*lease.Slot))
		}
		if lease.Abandoned {
			env, abandoned = append(env, "HASP_ABANDONED"+number+"1"), true
		}
	}
	if abandoned {
		env = append(env, "HASP_ABANDONED=1")
	}
	if j.o.occurrence != "" {
		env = append(env, "HASP_OCCURRENCE="+j.o.occurrence)
	}
	held := slices.Clone(j.around)
	for _, lease := range leases {
		held = append(held, lease.Owner)
	}
	return append(append(env, envHeld+"="+strings.Join(held, " "), "HASP_STORE_KIND="+j.from.Traits().Engine), j.inherited...)
}

// ours says whether hasp sets a variable for its command.
func ours(name string) bool {
	if at := strings.LastIndexByte(name, '_'); at > 0 {
		if _, err := strconv.ParseUint(name[at+1:], 10, 64); err == nil {
			name = name[:at] // HASP_KEY_1
		}
	}
	switch name {
	case "HASP_KEY", "HASP_FENCE", "HASP_OWNER", "HASP_SLOT", "HASP_ABANDONED", "HASP_OCCURRENCE", "HASP_STORE_KIND", envHeld, envAgent, store.EnvURL, store.EnvFile:
		return true
	}
	return false
}
