// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hasplock/hasp/cmd/hasp/internal/doctor"
	"github.com/hasplock/hasp/driver/operator"
	"golang.org/x/sys/unix"
)

// The numbers are those of statfs(2), also where a system extends their sign.
func TestSharedDisks(t *testing.T) {
	for kind, number := range map[string]int64{
		"NFS": 0x6969, "SMB": -0xacb2be, "FUSE": 0x65735546, "AFS": 0x5346414f, "Ceph": 0xc36400, "9P": 0x01021997, "Coda": 0x73757245, "OCFS2": 0x7461636f,
	} {
		if got := diskKind(number); got != kind {
			t.Errorf("%#x is %q, want %s", number, got, kind)
		}
	}
	for name, number := range map[string]int64{"ext4": 0xef53, "xfs": 0x58465342, "btrfs": 0x9123683e, "tmpfs": 0x01021994, "overlay": 0x794c7630, "zfs": 0x2fc12fc1} {
		if got := diskKind(number); got != "" {
			t.Errorf("%s is taken for %s", name, got)
		}
	}
}

// pretendShared has the disk of a folder be one that others may use, for this test.
func pretendShared(t *testing.T, dir string) {
	t.Helper()
	var s unix.Statfs_t
	must(t, unix.Statfs(dir, &s))
	number := uint32(s.Type)
	if sharedDisks[number] != "" {
		t.Fatalf("the tests run on %s", sharedDisks[number])
	}
	sharedDisks[number] = "a test's disk"
	t.Cleanup(func() { delete(sharedDisks, number) })
}

// The default store is refused where others may mount it, and named to whoever
// knows better.
func TestDefaultOnASharedDisk(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	if _, err := Find("", false); err != nil {
		t.Fatalf("on a disk of this machine: %v", err)
	}
	pretendShared(t, home)
	_, err := Find("", false)
	url := "sqlite:" + filepath.Join(home, "hasp", "locks.db")
	if err == nil || !strings.Contains(err.Error(), "is on a test's disk, which other machines may use, too") || !strings.HasSuffix(err.Error(), ": "+url) {
		t.Fatalf("the default store: %v", err)
	}
	if _, err := Find(url, true); err != nil {
		t.Errorf("the same one, named: %v", err)
	}
}

// Each container has its own layer, with its own file: the doctor says whom that keeps apart.
func TestLayersAreFound(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "root"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	root := filepath.Join(dir, "root")
	if err := unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)); err != nil {
		t.Skipf("no overlayfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, 0) })
	found := looks(t, "sqlite:"+root+"/x.db")
	has(t, found, operator.LevelWarn, "disk", "keeps apart the processes of this container alone")
	u, err := Parse("sqlite:" + root + "/x.db")
	must(t, err)
	s, err := u.Open()
	must(t, err)
	defer s.Close()
	use, _ := s.Fit([]doctor.Finding{{Level: found[0].Level, Check: found[0].Check, FencesRepeat: found[0].FencesRepeat}}, true)
	if use != doctor.ForEfficiency {
		t.Errorf("it is usable for %s", use)
	}
	t.Setenv("XDG_STATE_HOME", root)
	if _, err := Find("", false); err != nil {
		t.Errorf("the default within a container: %v", err)
	}
}

// A file that is named is used wherever it is, and the doctor says so.
func TestSharedDiskIsFound(t *testing.T) {
	dir := t.TempDir()
	if found := looks(t, "sqlite:"+dir+"/x.db"); len(found) > 0 {
		t.Errorf("on a local disk: %+v", found)
	}
	pretendShared(t, dir)
	has(t, looks(t, "sqlite:"+dir+"/x.db"), operator.LevelWarn, "disk", "on a test's disk, which other machines may use")
}
