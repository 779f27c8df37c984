package csi

// Disks in use: loop devices, found by the inode of their file, and mounts, believed only as /proc/self/mountinfo
// tells them.

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

// WrongMountError: what is mounted at the target is not what was asked for.
type WrongMountError struct {
	Target, Why string
}

func (e *WrongMountError) Error() string { return fmt.Sprintf("mount at %s: %s", e.Target, e.Why) }

// loopDevice is a block device (device: "major:minor") whose blocks are those of a file.
type loopDevice struct {
	path   string
	device string
}

// loops asks by inode: after a node's death the same file may be known by another path.
func (k *Disk) loops(ctx context.Context) ([]loopDevice, error) {
	listed, err := run(ctx, "losetup", "--associated", k.file, "--noheadings", "--output", "NAME")
	if err != nil {
		return nil, err
	}
	var loops []loopDevice
	for _, path := range strings.Fields(listed) {
		var node unix.Stat_t
		if err := unix.Stat(path, &node); err != nil {
			return nil, fmt.Errorf("loop device %s of %s: %w", path, k.file, err)
		}
		loops = append(loops, loopDevice{path: path, device: fmt.Sprintf("%d:%d", unix.Major(node.Rdev), unix.Minor(node.Rdev))})
	}
	return loops, nil
}

// mountPoint is a line of mountinfo.
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
	return mountPointsFrom(string(text)), nil
}

func mountPointsFrom(mountinfo string) []mountPoint {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var found []mountPoint
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		// id parent device root path options [tags…] - type source superblock's-options
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+4 {
			continue
		}
		found = append(found, mountPoint{
			device: fields[2],
			root:   unescape.Replace(fields[3]),
			path:   unescape.Replace(fields[4]),
			readOnly: slices.Contains(strings.Split(fields[5], ","), "ro") ||
				slices.Contains(strings.Split(fields[dash+3], ","), "ro"),
			shared: slices.ContainsFunc(fields[6:dash], func(tag string) bool { return strings.HasPrefix(tag, "shared:") }),
		})
	}
	return found
}

// mountedAt is the mount that is seen at a path: of several, the last.
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

// realPath resolves links above the target, but does not look at the target: a broken disk may be mounted there.
func realPath(target string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(target)))
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(target)), nil
}

// Mount mounts the disk at the target, or finds that it is mounted there already.
func (k *Disk) Mount(ctx context.Context, target string, readOnly bool, options []string) error {
	release, err := k.disks.turns.take(ctx, k.name)
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
		return k.settle(ctx, path, readOnly)
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err = k.attach(ctx, path, options); err == nil {
		err = k.settle(ctx, path, readOnly)
	}
	if err != nil {
		// A mount that is not as it should be must not be left for a pod to find.
		return errors.Join(err, detach(context.WithoutCancel(ctx), path))
	}
	return nil
}

// attach mounts the file, through the loop device it has or else one that the kernel clears after the last unmount.
// Two loop devices on one file would corrupt it. "nouuid" is left out on purpose: XFS's refusal to mount the same
// identity twice is the last guard against just that. It is mounted for writing even for a reader: the superblock is
// shared by all pods of the node, and a log may have to be replayed.
func (k *Disk) attach(ctx context.Context, path string, options []string) error {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		loops, err := k.loops(ctx)
		if err != nil {
			return err
		}
		source, wanted := k.file, append([]string{"loop"}, options...)
		switch len(loops) {
		case 0:
		case 1:
			source, wanted = loops[0].path, options
		default:
			return fmt.Errorf("%s has %d loop devices at once, mounting it would corrupt it: %w", k.file, len(loops), &InUseError{k.file, loops})
		}
		arguments := []string{"-t", "xfs"}
		if len(wanted) > 0 {
			arguments = append(arguments, "-o", strings.Join(wanted, ","))
		}
		_, err = run(ctx, "mount", append(arguments, source, path)...)
		// A loop device that was just being cleared fails: the next attempt makes a new one.
		if err == nil || attempt == attempts || len(loops) == 0 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// settle brings a mount to what was asked for and proves it, whether it is new or of an attempt that was interrupted.
func (k *Disk) settle(ctx context.Context, path string, readOnly bool) error {
	mount, found, err := mountedAt(path)
	if err != nil {
		return err
	}
	if !found {
		return &WrongMountError{path, "there is none after mounting"}
	}
	if err := k.owns(ctx, mount); err != nil {
		return err
	}
	if !mount.shared {
		return &WrongMountError{path, "it is not shared, so the kubelet's pods would write to the node's own disk: make the node's / rshared"}
	}
	if mount.readOnly && !readOnly {
		return &WrongMountError{path, "it is read-only, asked for is a writable one"}
	}
	if !mount.readOnly {
		if err := k.fill(ctx, mount); err != nil {
			return err
		}
	}
	if readOnly && !mount.readOnly {
		// Of this mount only, not of the superblock.
		attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attributes); err != nil {
			return fmt.Errorf("making %s read-only: %w", path, err)
		}
	}
	return nil
}

// owns proves that a mount shows this disk: its device is a loop device of this file. A loop device can be cleared and
// given to another file between being found and being mounted.
func (k *Disk) owns(ctx context.Context, mount mountPoint) error {
	loops, err := k.loops(ctx)
	if err != nil {
		return err
	}
	if mount.root != "/" || !slices.ContainsFunc(loops, func(loop loopDevice) bool { return loop.device == mount.device }) {
		return &WrongMountError{mount.path, fmt.Sprintf("it shows device %s (%s), which is not %s", mount.device, mount.root, k.file)}
	}
	return nil
}

// growMounted lets the file systems on a loop device fill it, if this node has mounted it.
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
		return &WrongMountError{mounts[0].path, "its file system cannot grow while all mounts of it are read-only"}
	}
	return k.fill(ctx, mounts[writable])
}

// fill grows a mounted file system to the size of its file, if it is smaller.
func (k *Disk) fill(ctx context.Context, mount mountPoint) error {
	size, err := k.Size()
	if err != nil {
		return err
	}
	if filled, err := k.fileSystemSize(); err != nil || filled >= size {
		return err
	}
	_, err = run(ctx, "xfs_growfs", mount.path)
	return err
}

// Unmount unmounts the target and removes its directory. A target that is gone already is fine.
func (k *Disk) Unmount(ctx context.Context, target string) error {
	release, err := k.disks.turns.take(ctx, k.name)
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

// detach never removes anything but an empty directory: what lies in it may be somebody's data.
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
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

// Usage is what statfs says of a mounted disk.
type Usage struct {
	Bytes, BytesFree, Inodes, InodesFree int64
}

// Usage measures the disk at a path, after proving that it is the disk: else it would tell of the node's own.
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
	if err := k.owns(ctx, mount); err != nil {
		return Usage{}, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return Usage{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	return Usage{
		Bytes: int64(disk.Blocks) * disk.Bsize, BytesFree: int64(disk.Bavail) * disk.Bsize,
		Inodes: int64(disk.Files), InodesFree: int64(disk.Ffree),
	}, nil
}
