package csi

// The disks: sparse files with XFS. A file is created under a temporary name, so a file with its final name is complete.
// Only this file and mount.go run programs or change file systems of the node.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	mebibyte = int64(1) << 20
	// MinDiskSize is the minimum size in bytes that mkfs.xfs accepts.
	MinDiskSize = 300 * mebibyte

	fileSuffix       = ".xfs"
	unfinishedSuffix = ".unfinished"
)

// ErrNoDisk reports that the volume has no file on this node.
var ErrNoDisk = errors.New("no such volume on this node")

// NoSpaceError reports that the file system of the volumes lacks space for the requested size.
type NoSpaceError struct {
	Dir                  string
	Requested, Available int64
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("%s has %d MiB that are neither used nor reserved for other volumes, but %d MiB are requested: free some space or request less",
		e.Dir, e.Available/mebibyte, e.Requested/mebibyte)
}

// InUseError reports that a loop device still uses the file.
type InUseError struct {
	File  string
	Loops []loopDevice
}

func (e *InUseError) Error() string {
	names := make([]string, 0, len(e.Loops))
	for _, loop := range e.Loops {
		names = append(names, loop.path)
	}
	return fmt.Sprintf("%s is still in use by %s: unmount the volume, or detach the device with losetup -d",
		e.File, strings.Join(names, ", "))
}

// Disks is the directory with the volumes of one node.
type Disks struct {
	dir         string
	volumeLocks volumeLocks
	// overcommit is the factor by which volumes may exceed the free space.
	overcommit int64
	// reserveLock makes the check for free space and the reservation atomic.
	reserveLock sync.Mutex
}

// OpenDisks creates the directory and removes files of an interrupted mkfs.
func OpenDisks(dir string, overcommit int64) (*Disks, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unfinished, err := filepath.Glob(filepath.Join(dir, "*"+unfinishedSuffix))
	if err != nil {
		return nil, err
	}
	for _, file := range unfinished {
		if err := os.Remove(file); err != nil {
			return nil, err
		}
	}
	return &Disks{dir: dir, overcommit: overcommit}, nil
}

// Disk is the file of one volume, which may not exist yet.
type Disk struct {
	disks *Disks
	name  string
	file  string
}

// Disk returns the disk of a volume. It rejects a name that would lead out of the directory, since the name comes from a
// client of the socket.
func (d *Disks) Disk(name string) (*Disk, error) {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return nil, fmt.Errorf("%q is not a valid volume name", name)
	}
	return &Disk{disks: d, name: name, file: filepath.Join(d.dir, name+fileSuffix)}, nil
}

// Size returns the size of the file in bytes, or ErrNoDisk.
func (k *Disk) Size() (int64, error) {
	info, err := os.Stat(k.file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("%w: %s", ErrNoDisk, k.file)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Create creates the file with an empty file system. It keeps the contents of an existing file and only expands it.
func (k *Disk) Create(ctx context.Context, size int64) error {
	release, err := k.disks.volumeLocks.acquire(ctx, k.name)
	if err != nil {
		return err
	}
	defer release()
	if _, err := k.Size(); err == nil {
		return k.grow(ctx, size)
	} else if !errors.Is(err, ErrNoDisk) {
		return err
	}
	unfinished := k.file + unfinishedSuffix
	if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
		return err
	}
	if err = k.disks.reserve(unfinished, size); err == nil {
		err = format(ctx, unfinished, k.file)
	}
	if err != nil {
		_ = os.Remove(unfinished)
	}
	return err
}

// format creates the file system and renames the file to its final name after it is synced.
func format(ctx context.Context, unfinished, file string) error {
	// -K skips the discard, which a sparse file does not need.
	if _, err := run(ctx, "mkfs.xfs", "-q", "-K", unfinished); err != nil {
		return err
	}
	if err := syncPath(unfinished); err != nil {
		return err
	}
	if err := os.Rename(unfinished, file); err != nil {
		return err
	}
	return syncPath(filepath.Dir(file))
}

// Grow expands the disk to at least this size, mounted or not. The file of an unmounted disk grows now, its file system at
// the next mount.
func (k *Disk) Grow(ctx context.Context, size int64) error {
	release, err := k.disks.volumeLocks.acquire(ctx, k.name)
	if err != nil {
		return err
	}
	defer release()
	return k.grow(ctx, size)
}

func (k *Disk) grow(ctx context.Context, size int64) error {
	current, err := k.Size()
	if err != nil {
		return err
	}
	if current < size {
		if err := k.disks.reserve(k.file, size); err != nil {
			return err
		}
	}
	loops, err := k.loops(ctx)
	if err != nil {
		return err
	}
	for _, loop := range loops {
		// This also runs when the file has its size already: an earlier attempt may have been interrupted.
		if _, err := run(ctx, "losetup", "-c", loop.path); err != nil {
			return err
		}
		if err := k.growMounted(ctx, loop); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes the file. It fails while a loop device uses the file, and does nothing when the file does not exist.
func (k *Disk) Remove(ctx context.Context) error {
	release, err := k.disks.volumeLocks.acquire(ctx, k.name)
	if err != nil {
		return err
	}
	defer release()
	if _, err := k.Size(); errors.Is(err, ErrNoDisk) {
		return nil
	}
	loops, err := k.loops(ctx)
	if err != nil {
		return err
	}
	if len(loops) > 0 {
		return &InUseError{File: k.file, Loops: loops}
	}
	if err := os.Remove(k.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return syncPath(k.disks.dir)
}

// reserve sets the size of the file if the file system has space for all volumes. On a full file system, writeback to a
// sparse file fails, and pods lose data that they have already written.
func (d *Disks) reserve(file string, size int64) error {
	d.reserveLock.Lock()
	defer d.reserveLock.Unlock()
	handle, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return err
	}
	available, err := d.unreservedSpace()
	if err != nil {
		return err
	}
	if additional := size - info.Size(); additional > available {
		return &NoSpaceError{Dir: d.dir, Requested: additional, Available: max(available, 0)}
	}
	if err := handle.Truncate(size); err != nil {
		return err
	}
	return handle.Sync()
}

// unreservedSpace returns the free space of the file system times the overcommit factor, minus the unwritten parts of all
// volumes.
func (d *Disks) unreservedSpace() (int64, error) {
	var store unix.Statfs_t
	if err := unix.Statfs(d.dir, &store); err != nil {
		return 0, fmt.Errorf("failed to read the free space of %s: %w", d.dir, err)
	}
	available := int64(store.Bavail) * store.Bsize * d.overcommit
	// The volumes of the other nodes are on the same file system.
	volumes, err := filepath.Glob(filepath.Join(d.dir, "..", "..", "*", filepath.Base(d.dir), "*"))
	if err != nil {
		return 0, err
	}
	for _, volume := range volumes {
		var file unix.Stat_t
		err := unix.Lstat(volume, &file)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return 0, err
		}
		// st_blocks counts units of 512 bytes, independent of the block size of the file system.
		available -= max(file.Size-file.Blocks*512, 0)
	}
	return available, nil
}

// fileSystemSize reads the size from the XFS superblock in the file. While the disk is mounted, the value may be outdated
// (too small).
func (k *Disk) fileSystemSize() (int64, error) {
	file, err := os.Open(k.file)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	// The magic number, the block size and the number of data blocks, big-endian.
	head := make([]byte, 16)
	if _, err := file.ReadAt(head, 0); err != nil {
		return 0, fmt.Errorf("failed to read the superblock of %s: %w", k.file, err)
	}
	if string(head[:4]) != "XFSB" {
		return 0, fmt.Errorf("%s does not contain an XFS file system", k.file)
	}
	return int64(binary.BigEndian.Uint32(head[4:])) * int64(binary.BigEndian.Uint64(head[8:])), nil
}

func syncPath(path string) error {
	handle, err := os.Open(path)
	if err != nil {
		return err
	}
	defer handle.Close()
	return handle.Sync()
}
