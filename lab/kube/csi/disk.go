package csi

// The disks themselves: sparse files with XFS, made under a temporary name so that a file under its own name is whole.
// This file and mount.go are the only ones that run programs or touch the node's file systems.

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
	// SmallestDisk is the least that mkfs.xfs accepts.
	SmallestDisk = 300 * mebibyte

	fileSuffix       = ".xfs"
	unfinishedSuffix = ".unfinished"
)

// ErrNoDisk: the volume has no file on this node.
var ErrNoDisk = errors.New("no such volume on this node")

// NoRoomError: the volumes' file system could not keep what it would promise.
type NoRoomError struct {
	Dir         string
	Asked, Room int64
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("%s has %d MiB that are neither used nor promised to other volumes, %d MiB are asked for: free some space or ask for less",
		e.Dir, e.Room/mebibyte, e.Asked/mebibyte)
}

// InUseError: a loop device still reads and writes the file.
type InUseError struct {
	File  string
	Loops []loopDevice
}

func (e *InUseError) Error() string {
	names := make([]string, 0, len(e.Loops))
	for _, loop := range e.Loops {
		names = append(names, loop.path)
	}
	return fmt.Sprintf("%s is still in use by %s: it can go when that is unmounted (or detached with losetup -d)",
		e.File, strings.Join(names, ", "))
}

// Disks is the directory of one node's volumes.
type Disks struct {
	dir   string
	turns turns
	// overcommit is how many times the free space may be promised: volumes that nobody means to fill need not have theirs.
	overcommit int64
	// room makes checking for space and taking it one step.
	room sync.Mutex
}

// OpenDisks prepares the directory and clears away what an interrupted mkfs has left.
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

// Disk is one volume: a file that may or may not exist yet.
type Disk struct {
	disks *Disks
	name  string
	file  string
}

// Disk names a volume. The name comes over a socket, so it must not lead out of the directory.
func (d *Disks) Disk(name string) (*Disk, error) {
	if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00") {
		return nil, fmt.Errorf("%q is no name of a volume", name)
	}
	return &Disk{disks: d, name: name, file: filepath.Join(d.dir, name+fileSuffix)}, nil
}

// Size is the size of the file, or ErrNoDisk.
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

// Create makes the file with an empty file system in it. A file that exists is left as it is, but for its size.
func (k *Disk) Create(ctx context.Context, size int64) error {
	release, err := k.disks.turns.take(ctx, k.name)
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

// format makes the file system and gives the file its true name once everything is on the disk.
func format(ctx context.Context, unfinished, file string) error {
	// -K: a sparse file has nothing to discard.
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

// Grow makes the disk at least this large, in use or not. A disk that is not mounted here gets its larger file now and
// its larger file system when it is next mounted.
func (k *Disk) Grow(ctx context.Context, size int64) error {
	release, err := k.disks.turns.take(ctx, k.name)
	if err != nil {
		return err
	}
	defer release()
	return k.grow(ctx, size)
}

func (k *Disk) grow(ctx context.Context, size int64) error {
	now, err := k.Size()
	if err != nil {
		return err
	}
	if now < size {
		if err := k.disks.reserve(k.file, size); err != nil {
			return err
		}
	}
	loops, err := k.loops(ctx)
	if err != nil {
		return err
	}
	for _, loop := range loops {
		// Repeated even when the file had its size already: an earlier attempt may have ended in between.
		if _, err := run(ctx, "losetup", "-c", loop.path); err != nil {
			return err
		}
		if err := k.growMounted(ctx, loop); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes the file, unless a loop device still uses it. A file that is gone already is fine.
func (k *Disk) Remove(ctx context.Context) error {
	release, err := k.disks.turns.take(ctx, k.name)
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

// reserve makes the file that large if the directory can keep the promise: sparse files whose backing store is full
// lose, in writeback, data that their pods believe written.
func (d *Disks) reserve(file string, size int64) error {
	d.room.Lock()
	defer d.room.Unlock()
	handle, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return err
	}
	room, err := d.unpromised()
	if err != nil {
		return err
	}
	if more := size - info.Size(); more > room {
		return &NoRoomError{Dir: d.dir, Asked: more, Room: max(room, 0)}
	}
	if err := handle.Truncate(size); err != nil {
		return err
	}
	return handle.Sync()
}

// unpromised is the free space of the file system, as often as it may be promised, less what its volumes may still come to
// fill.
func (d *Disks) unpromised() (int64, error) {
	var store unix.Statfs_t
	if err := unix.Statfs(d.dir, &store); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", d.dir, err)
	}
	room := int64(store.Bavail) * store.Bsize * d.overcommit
	// The lab's other nodes keep their volumes beside ours, on the same disk.
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
		// Blocks are counted in 512 bytes whatever the file system's own block size.
		room -= max(file.Size-file.Blocks*512, 0)
	}
	return room, nil
}

// fileSystemSize reads XFS's superblock in the file. While mounted it may lag behind, but never runs ahead.
func (k *Disk) fileSystemSize() (int64, error) {
	file, err := os.Open(k.file)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	// Magic, block size, and number of data blocks, big-endian.
	head := make([]byte, 16)
	if _, err := file.ReadAt(head, 0); err != nil {
		return 0, fmt.Errorf("superblock of %s: %w", k.file, err)
	}
	if string(head[:4]) != "XFSB" {
		return 0, fmt.Errorf("%s holds no XFS", k.file)
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
