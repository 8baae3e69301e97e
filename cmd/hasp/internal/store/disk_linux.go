// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package store

import "golang.org/x/sys/unix"

// sharedDisks are file systems that several machines may use at once, by their
// number in statfs(2). FUSE may be anything, sshfs as well; 9P is how virtual machines
// and WSL show folders of their host.
var sharedDisks = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC:  "SMB",
	unix.FUSE_SUPER_MAGIC:  "FUSE",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.V9FS_MAGIC:        "9P",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x01161970:             "GFS2",
	0x0bd00bd0:             "Lustre",
	0x47504653:             "GPFS",
	0x786f4256:             "a shared folder of VirtualBox",
	0xbacbacbc:             "a shared folder of VMware",
}

// sharedDisk names the kind of file system that a folder is on, when it is one of
// those; empty when it is not, or cannot be known.
func sharedDisk(dir string) string {
	return diskKind(diskNumber(dir))
}

// layered says whether a folder is on a writable layer over others, as the root of a container is: each has one of its own.
func layered(dir string) bool { return uint32(diskNumber(dir)) == unix.OVERLAYFS_SUPER_MAGIC }

// diskNumber is 0 where it cannot be known.
func diskNumber(dir string) int64 {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0
	}
	return int64(s.Type) //nolint:unconvert // another type elsewhere
}

// diskKind takes a number of statfs, of which some systems extend the sign.
func diskKind(number int64) string { return sharedDisks[uint32(number)] }
