package csi

// Loop devices and mounts of disks. Loop devices are looked up by the inode of their file; mounts are read from
// /proc/self/mountinfo only.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// WrongMountError reports that the mount at the target differs from the requested one.
type WrongMountError struct {
	Target, Reason string
}

func (e *WrongMountError) Error() string {
	return fmt.Sprintf("wrong mount at %s: %s", e.Target, e.Reason)
}

// loopDevice is a loop device; device is "major:minor".
type loopDevice struct {
	path   string
	device string
}

// loops returns the loop devices of the file. losetup compares inodes: after a restart of the node the file may have
// another path.
func (k *Disk) loops(ctx context.Context) ([]loopDevice, error) {
	output, err := run(ctx, "losetup", "--associated", k.file, "--noheadings", "--output", "NAME")
	if err != nil {
		return nil, err
	}
	var loops []loopDevice
	for _, path := range strings.Fields(output) {
		var node unix.Stat_t
		if err := unix.Stat(path, &node); err != nil {
			return nil, fmt.Errorf("failed to stat loop device %s of %s: %w", path, k.file, err)
		}
		loops = append(loops, loopDevice{path: path, device: fmt.Sprintf("%d:%d", unix.Major(node.Rdev), unix.Minor(node.Rdev))})
	}
	return loops, nil
}

// mountPoint is one line of mountinfo.
type mountPoint struct {
	device   string
	root     string
	path     string
	readOnly bool
	shared   bool
}

func mountPoints() ([]mountPoint, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMountinfo(string(text)), nil
}

func parseMountinfo(mountinfo string) []mountPoint {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []mountPoint
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		// id parent device root path options [tags…] - type source superblock-options
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+4 {
			continue
		}
		mounts = append(mounts, mountPoint{
			device: fields[2],
			root:   unescape.Replace(fields[3]),
			path:   unescape.Replace(fields[4]),
			readOnly: slices.Contains(strings.Split(fields[5], ","), "ro") ||
				slices.Contains(strings.Split(fields[dash+3], ","), "ro"),
			shared: slices.ContainsFunc(fields[6:dash], func(tag string) bool { return strings.HasPrefix(tag, "shared:") }),
		})
	}
	return mounts
}

// mountedAt returns the visible mount at a path: the last of several.
func mountedAt(path string) (mountPoint, bool, error) {
	mounts, err := mountPoints()
	if err != nil {
		return mountPoint{}, false, err
	}
	for _, mount := range slices.Backward(mounts) {
		if mount.path == path {
			return mount, true, nil
		}
	}
	return mountPoint{}, false, nil
}

// realPath resolves symbolic links in the parent of the target. It does not access the target, where a broken disk may be
// mounted.
func realPath(target string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(target)))
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(target)), nil
}

// Mount mounts the disk at the target; it accepts an existing mount of the disk.
func (k *Disk) Mount(ctx context.Context, target string, readOnly bool, options []string) error {
	release, err := k.disks.volumeLocks.acquire(ctx, k.name)
	if err != nil {
		return err
	}
	defer release()
	if _, err := k.Size(); err != nil {
		return err
	}
	path, err := realPath(target)
	if err != nil {
		return err
	}
	_, mounted, err := mountedAt(path)
	if err != nil {
		return err
	}
	if mounted {
		return k.ensureMount(ctx, path, readOnly)
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err = k.attach(ctx, path, options); err == nil {
		err = k.ensureMount(ctx, path, readOnly)
	}
	if err != nil {
		// A wrong mount is removed, so that no pod uses it.
		return errors.Join(err, detach(context.WithoutCancel(ctx), path))
	}
	return nil
}

// attach mounts the file through its existing loop device, or through a new one that the kernel clears after the last
// unmount. Two loop devices for one file would corrupt it; for that reason the mount option "nouuid" is not used, so that
// XFS rejects a second mount of the same UUID. The file system is always mounted read-write, also for a read-only target:
// all pods of the node share the superblock, and XFS may have to replay its log.
func (k *Disk) attach(ctx context.Context, path string, options []string) error {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		loops, err := k.loops(ctx)
		if err != nil {
			return err
		}
		source, mountOptions := k.file, append([]string{"loop"}, options...)
		switch len(loops) {
		case 0:
		case 1:
			source, mountOptions = loops[0].path, options
		default:
			return fmt.Errorf("%s has %d loop devices, a mount would corrupt it: %w", k.file, len(loops), &InUseError{k.file, loops})
		}
		arguments := []string{"-t", "xfs"}
		if len(mountOptions) > 0 {
			arguments = append(arguments, "-o", strings.Join(mountOptions, ","))
		}
		_, err = run(ctx, "mount", append(arguments, source, path)...)
		// The mount fails while the kernel clears the loop device; the next attempt uses a new one.
		if err == nil || attempt == attempts || len(loops) == 0 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ensureMount verifies a new mount, or one of an interrupted attempt, and completes its setup.
func (k *Disk) ensureMount(ctx context.Context, path string, readOnly bool) error {
	mount, found, err := mountedAt(path)
	if err != nil {
		return err
	}
	if !found {
		return &WrongMountError{path, "nothing is mounted there after mount(8)"}
	}
	if err := k.verifySource(ctx, mount); err != nil {
		return err
	}
	if !mount.shared {
		return &WrongMountError{path, "the mount is not shared, so pods would write to the disk of the node: make / of the node rshared"}
	}
	if mount.readOnly && !readOnly {
		return &WrongMountError{path, "the mount is read-only, but a writable one is requested"}
	}
	if !mount.readOnly {
		if err := k.growFileSystem(ctx, mount); err != nil {
			return err
		}
	}
	if readOnly && !mount.readOnly {
		// This changes only this mount, not the superblock.
		attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attributes); err != nil {
			return fmt.Errorf("failed to make %s read-only: %w", path, err)
		}
	}
	return nil
}

// verifySource checks that a mount shows this disk, i.e. that its device is a loop device of this file. The kernel may
// clear a loop device and reuse it for another file between the lookup and the mount.
func (k *Disk) verifySource(ctx context.Context, mount mountPoint) error {
	loops, err := k.loops(ctx)
	if err != nil {
		return err
	}
	if mount.root != "/" || !slices.ContainsFunc(loops, func(loop loopDevice) bool { return loop.device == mount.device }) {
		return &WrongMountError{mount.path, fmt.Sprintf("it shows device %s (root %s), which does not belong to %s", mount.device, mount.root, k.file)}
	}
	return nil
}

// growMounted expands the file system on a loop device to the size of the device, if it is mounted.
func (k *Disk) growMounted(ctx context.Context, loop loopDevice) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	mounts = slices.DeleteFunc(mounts, func(mount mountPoint) bool { return mount.device != loop.device || mount.root != "/" })
	if len(mounts) == 0 {
		return nil
	}
	writable := slices.IndexFunc(mounts, func(mount mountPoint) bool { return !mount.readOnly })
	if writable < 0 {
		return &WrongMountError{mounts[0].path, "the file system cannot be expanded while all its mounts are read-only"}
	}
	return k.growFileSystem(ctx, mounts[writable])
}

// growFileSystem expands a mounted file system to the size of its file.
func (k *Disk) growFileSystem(ctx context.Context, mount mountPoint) error {
	size, err := k.Size()
	if err != nil {
		return err
	}
	if current, err := k.fileSystemSize(); err != nil || current >= size {
		return err
	}
	_, err = run(ctx, "xfs_growfs", mount.path)
	return err
}

// Unmount unmounts the target and removes its directory. It does nothing when the target does not exist.
func (k *Disk) Unmount(ctx context.Context, target string) error {
	release, err := k.disks.volumeLocks.acquire(ctx, k.name)
	if err != nil {
		return err
	}
	defer release()
	path, err := realPath(target)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return detach(ctx, path)
}

// detach unmounts the path and removes the directory only if it is empty: files in it may be data.
func detach(ctx context.Context, path string) error {
	for {
		_, mounted, err := mountedAt(path)
		if err != nil {
			return err
		}
		if !mounted {
			break
		}
		if _, err := run(ctx, "umount", path); err != nil {
			return err
		}
	}
	if err := unix.Rmdir(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("failed to remove %s: %w", path, err)
	}
	return nil
}

// Usage is the usage of a mounted disk, from statfs.
type Usage struct {
	Bytes, BytesFree, Inodes, InodesFree int64
}

// Usage returns the usage of the disk at a path. It verifies the mount first; otherwise it could return the usage of the
// disk of the node.
func (k *Disk) Usage(ctx context.Context, target string) (Usage, error) {
	if _, err := k.Size(); err != nil {
		return Usage{}, err
	}
	path, err := realPath(target)
	if err != nil {
		return Usage{}, err
	}
	mount, found, err := mountedAt(path)
	if err != nil {
		return Usage{}, err
	}
	if !found {
		return Usage{}, fmt.Errorf("%w: nothing is mounted at %s", ErrNoDisk, path)
	}
	if err := k.verifySource(ctx, mount); err != nil {
		return Usage{}, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return Usage{}, fmt.Errorf("failed to read the usage of %s: %w", path, err)
	}
	return Usage{
		Bytes: int64(disk.Blocks) * disk.Bsize, BytesFree: int64(disk.Bavail) * disk.Bsize,
		Inodes: int64(disk.Files), InodesFree: int64(disk.Ffree),
	}, nil
}
