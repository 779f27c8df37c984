package csi

// Tests on real disks. They run in a new mount namespace with a shared /, as on a node. The kernel removes the mounts and
// loop devices of a failed or killed test with the namespace.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const inNamespace = "LAB_CSI_TEST_IN_NAMESPACE"

func TestMain(m *testing.M) {
	if !canMount() || os.Getenv(inNamespace) != "" {
		os.Exit(m.Run())
	}
	arguments := append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount --make-rshared / && exec "$0" "$@"`}, os.Args...)
	err := syscall.Exec("/usr/bin/unshare", arguments, append(os.Environ(), inNamespace+"=yes"))
	fmt.Fprintf(os.Stderr, "failed to create a mount namespace for the tests: %v\n", err)
	os.Exit(1)
}

// canMount reports whether this process may mount: root may lack the capability.
func canMount() bool {
	return os.Getuid() == 0 && exec.Command("unshare", "--mount", "true").Run() == nil
}

// testDisks returns disks in a temporary directory; the cleanup unmounts everything below it.
func testDisks(t *testing.T) (*Disks, string) {
	t.Helper()
	if !canMount() {
		t.Skip("needs CAP_SYS_ADMIN for loop devices and mounts")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mounts, _ := mountPoints()
		for _, mount := range slices.Backward(mounts) {
			if strings.HasPrefix(mount.path, dir+"/") {
				_ = unix.Unmount(mount.path, unix.MNT_DETACH)
			}
		}
	})
	disks, err := OpenDisks(filepath.Join(dir, "volumes"), 1)
	if err != nil {
		t.Fatal(err)
	}
	return disks, dir
}

func createDisk(t *testing.T, disks *Disks, name string) *Disk {
	t.Helper()
	disk, err := disks.Disk(name)
	if err != nil {
		t.Fatal(err)
	}
	check(t, disk.Create(t.Context(), MinDiskSize))
	return disk
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// waitUntilDetached waits until the kernel clears the loop device after the last unmount.
func waitUntilDetached(t *testing.T, disk *Disk) {
	t.Helper()
	var loops []loopDevice
	for range 50 {
		var err error
		if loops, err = disk.loops(context.Background()); err == nil && len(loops) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s still has the loop devices %v", disk.file, loops)
}

// writeUntilFull writes until the disk is full and returns the number of bytes written.
func writeUntilFull(t *testing.T, file string) int64 {
	t.Helper()
	handle, err := os.Create(file)
	check(t, err)
	defer handle.Close()
	chunk := make([]byte, 4*mebibyte)
	written := int64(0)
	for {
		n, err := handle.Write(chunk)
		written += int64(n)
		if errors.Is(err, unix.ENOSPC) {
			return written
		}
		check(t, err)
		if written > 1<<30 {
			t.Fatal("wrote more than 1 GiB to a disk of 300 MiB")
		}
	}
}

func Test_a_full_mounted_disk_can_be_expanded_and_removed(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1")
	target := filepath.Join(dir, "mount")
	check(t, disk.Mount(t.Context(), target, false, []string{"noatime"}))

	written := writeUntilFull(t, filepath.Join(target, "ballast"))
	if written > MinDiskSize {
		t.Errorf("wrote %d MiB to a disk of 300 MiB", written/mebibyte)
	}
	t.Logf("wrote %d MiB to a disk of %d MiB", written/mebibyte, MinDiskSize/mebibyte)
	before, err := disk.Usage(t.Context(), target)
	check(t, err)

	check(t, disk.Grow(t.Context(), 2*MinDiskSize))
	check(t, disk.Grow(t.Context(), 2*MinDiskSize))
	after, err := disk.Usage(t.Context(), target)
	check(t, err)
	if after.Bytes-before.Bytes != MinDiskSize {
		t.Errorf("the file system grew by %d MiB, want %d", (after.Bytes-before.Bytes)/mebibyte, MinDiskSize/mebibyte)
	}
	check(t, os.WriteFile(filepath.Join(target, "more"), make([]byte, 8*mebibyte), 0o600))

	var inUse *InUseError
	if err := disk.Remove(t.Context()); !errors.As(err, &inUse) {
		t.Errorf("removal of a mounted disk: %v", err)
	}
	check(t, disk.Unmount(t.Context(), target))
	waitUntilDetached(t, disk)
	check(t, disk.Remove(t.Context()))
	check(t, disk.Remove(t.Context()))
	if _, err := disk.Size(); !errors.Is(err, ErrNoDisk) {
		t.Errorf("size after the removal: %v", err)
	}
}

func Test_a_disk_expanded_while_unmounted_has_its_size_when_mounted(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1")
	check(t, disk.Grow(t.Context(), 2*MinDiskSize))
	target := filepath.Join(dir, "mount")
	check(t, disk.Mount(t.Context(), target, false, nil))
	usage, err := disk.Usage(t.Context(), target)
	check(t, err)
	// The XFS log uses 64 MiB.
	if usage.Bytes < 2*MinDiskSize-65*mebibyte {
		t.Errorf("the file system has %d MiB", usage.Bytes/mebibyte)
	}
}

func Test_creating_an_existing_disk_keeps_its_files(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1")
	target := filepath.Join(dir, "mount")
	check(t, disk.Mount(t.Context(), target, false, nil))
	check(t, os.WriteFile(filepath.Join(target, "word"), []byte("kept"), 0o600))
	check(t, disk.Unmount(t.Context(), target))

	check(t, disk.Create(t.Context(), MinDiskSize))
	check(t, disk.Mount(t.Context(), target, false, nil))
	if word, err := os.ReadFile(filepath.Join(target, "word")); err != nil || string(word) != "kept" {
		t.Errorf("read %q, %v", word, err)
	}
}

func Test_a_read_only_mount_shares_the_loop_device_of_a_writable_one(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1")
	reader, writer := filepath.Join(dir, "reader"), filepath.Join(dir, "writer")
	check(t, disk.Mount(t.Context(), reader, true, nil))
	check(t, disk.Mount(t.Context(), writer, false, nil))
	loops, err := disk.loops(t.Context())
	check(t, err)
	if len(loops) != 1 {
		t.Errorf("the file has the loop devices %v", loops)
	}
	check(t, os.WriteFile(filepath.Join(writer, "word"), []byte("seen"), 0o600))
	if word, err := os.ReadFile(filepath.Join(reader, "word")); err != nil || string(word) != "seen" {
		t.Errorf("the read-only mount shows %q, %v", word, err)
	}
	if err := os.WriteFile(filepath.Join(reader, "word"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write to the read-only mount: %v", err)
	}
	check(t, disk.Unmount(t.Context(), writer))
	var wrong *WrongMountError
	if err := disk.Grow(t.Context(), 2*MinDiskSize); !errors.As(err, &wrong) {
		t.Errorf("expansion with read-only mounts only: %v", err)
	}
	check(t, disk.Unmount(t.Context(), reader))
	waitUntilDetached(t, disk)
}

func Test_a_second_mount_stays_usable_when_the_first_is_unmounted(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1")
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	check(t, disk.Mount(t.Context(), first, false, nil))
	check(t, disk.Mount(t.Context(), second, false, nil))
	check(t, disk.Unmount(t.Context(), first))
	check(t, os.WriteFile(filepath.Join(second, "word"), []byte("still here"), 0o600))
	check(t, disk.Unmount(t.Context(), second))
	waitUntilDetached(t, disk)
}

func Test_another_disk_at_the_target_is_rejected_and_stays_mounted(t *testing.T) {
	disks, dir := testDisks(t)
	disk, other := createDisk(t, disks, "pvc-1"), createDisk(t, disks, "pvc-2")
	target := filepath.Join(dir, "mount")
	check(t, other.Mount(t.Context(), target, false, nil))
	var wrong *WrongMountError
	if err := disk.Mount(t.Context(), target, false, nil); !errors.As(err, &wrong) {
		t.Errorf("mount over another disk: %v", err)
	}
	if _, err := disk.Usage(t.Context(), target); !errors.As(err, &wrong) {
		t.Errorf("usage of another disk: %v", err)
	}
	if _, err := other.Usage(t.Context(), target); err != nil {
		t.Errorf("the other disk is no longer mounted: %v", err)
	}
}

func Test_a_mount_that_is_not_shared_is_rejected_and_removed(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1")
	private := filepath.Join(dir, "private")
	check(t, os.Mkdir(private, 0o700))
	check(t, unix.Mount(private, private, "", unix.MS_BIND, ""))
	check(t, unix.Mount("", private, "", unix.MS_PRIVATE, ""))
	target := filepath.Join(private, "mount")
	var wrong *WrongMountError
	if err := disk.Mount(t.Context(), target, false, nil); !errors.As(err, &wrong) {
		t.Errorf("mount below a private mount: %v", err)
	}
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target still exists: %v", err)
	}
	waitUntilDetached(t, disk)
}

func Test_unmounting_never_removes_files(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1")
	target := filepath.Join(dir, "mount")
	check(t, os.Mkdir(target, 0o700))
	check(t, os.WriteFile(filepath.Join(target, "astray"), nil, 0o600))
	if err := disk.Unmount(t.Context(), target); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("unmount of a directory with files: %v", err)
	}
	if _, err := os.Stat(filepath.Join(target, "astray")); err != nil {
		t.Error(err)
	}
}

func Test_a_disk_larger_than_the_free_space_is_rejected(t *testing.T) {
	disks, _ := testDisks(t)
	available, err := disks.unreservedSpace()
	check(t, err)
	// The first volume reserves nearly all space without writing it.
	large, err := disks.Disk("pvc-1")
	check(t, err)
	check(t, large.Create(t.Context(), roundUpSize(available-4*MinDiskSize)))

	second, err := disks.Disk("pvc-2")
	check(t, err)
	var noSpace *NoSpaceError
	if err := second.Create(t.Context(), 5*MinDiskSize); !errors.As(err, &noSpace) {
		t.Errorf("creation without enough space: %v", err)
	}
	if err := large.Grow(t.Context(), available+5*MinDiskSize); !errors.As(err, &noSpace) {
		t.Errorf("expansion without enough space: %v", err)
	}
	entries, err := os.ReadDir(disks.dir)
	check(t, err)
	if len(entries) != 1 {
		t.Errorf("the directory has the entries %v", entries)
	}
}

func Test_free_space_is_overcommitted_by_the_factor(t *testing.T) {
	disks, _ := testDisks(t)
	available, err := disks.unreservedSpace()
	check(t, err)
	overcommitted, err := OpenDisks(disks.dir, 4)
	check(t, err)
	larger, err := overcommitted.Disk("pvc-1")
	check(t, err)
	check(t, larger.Create(t.Context(), roundUpSize(2*available)))
	second, err := overcommitted.Disk("pvc-2")
	check(t, err)
	var noSpace *NoSpaceError
	if err := second.Create(t.Context(), roundUpSize(3*available)); !errors.As(err, &noSpace) {
		t.Errorf("volumes of five times the free space: %v", err)
	}
}

func Test_the_file_of_an_interrupted_mkfs_is_removed_at_the_next_start(t *testing.T) {
	disks, _ := testDisks(t)
	left := filepath.Join(disks.dir, "pvc-1"+fileSuffix+unfinishedSuffix)
	check(t, os.WriteFile(left, nil, 0o600))
	_, err := OpenDisks(disks.dir, 1)
	check(t, err)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file still exists: %v", err)
	}
}

func Test_a_volume_name_with_a_path_separator_is_rejected(t *testing.T) {
	disks := &Disks{dir: "/volumes"}
	for _, name := range []string{"", ".", "..", "../etc/passwd", "a/b", ".hidden", "a\x00b"} {
		if _, err := disks.Disk(name); err == nil {
			t.Errorf("%q is accepted as a volume name", name)
		}
	}
}

func Test_a_command_error_has_its_output_and_a_command_is_time_limited(t *testing.T) {
	_, err := run(t.Context(), "sh", "-c", "echo disk is full >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "disk is full") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("the error is: %v", err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := run(brief, "sleep", "60"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is: %v", err)
	}
}

func Test_a_volume_lock_excludes_a_second_operation(t *testing.T) {
	var locks volumeLocks
	release, err := locks.acquire(t.Context(), "pvc-1")
	check(t, err)
	other, err := locks.acquire(t.Context(), "pvc-2")
	check(t, err)
	other()
	brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := locks.acquire(brief, "pvc-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second operation got the lock: %v", err)
	}
	release()
	release, err = locks.acquire(t.Context(), "pvc-1")
	check(t, err)
	release()
}
