// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import "golang.org/x/sys/unix"

// sharedDisks are file systems that several machines may use at once, by their
// number in statfs(2). FUSE may be anything, sshfs as well.
var sharedDisks = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CIFS_SUPER_MAGIC: "SMB",
	unix.FUSE_SUPER_MAGIC: "FUSE",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.CEPH_SUPER_MAGIC: "Ceph",
}

// sharedDisk names the kind of file system that a folder is on, when it is one of
// those; empty when it is not, or cannot be known.
func sharedDisk(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return ""
	}
	return sharedDisks[uint32(s.Type)]
}
