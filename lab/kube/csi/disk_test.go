package csi

// Tests on real disks. Root runs them in a mount namespace of its own whose / is rshared, as a node's is: whatever a
// failed or killed test leaves mounted goes with the namespace, and the loop devices with the mounts.

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
	if !mayMount() || os.Getenv(inNamespace) != "" {
		os.Exit(m.Run())
	}
	arguments := append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount --make-rshared / && exec "$0" "$@"`}, os.Args...)
	err := syscall.Exec("/usr/bin/unshare", arguments, append(os.Environ(), inNamespace+"=yes"))
	fmt.Fprintf(os.Stderr, "a mount namespace for the tests: %v\n", err)
	os.Exit(1)
}

// mayMount tells whether mounts can be tried here: being root does not suffice where capabilities were taken away.
func mayMount() bool {
	return os.Getuid() == 0 && exec.Command("unshare", "--mount", "true").Run() == nil
}

// given are disks in a directory of the test's own, from which everything is unmounted in the end.
func given(t *testing.T) (*Disks, string) {
	t.Helper()
	if !mayMount() {
		t.Skip("needs CAP_SYS_ADMIN: loop devices and mounts cannot be tried")
	}
	place, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mounts, _ := mountPoints()
		for _, mount := range slices.Backward(mounts) {
			if strings.HasPrefix(mount.path, place+"/") {
				_ = unix.Unmount(mount.path, unix.MNT_DETACH)
			}
		}
	})
	disks, err := OpenDisks(filepath.Join(place, "volumes"), 1)
	if err != nil {
		t.Fatal(err)
	}
	return disks, place
}

func created(t *testing.T, disks *Disks, name string) *Disk {
	t.Helper()
	disk, err := disks.Disk(name)
	if err != nil {
		t.Fatal(err)
	}
	must(t, disk.Create(t.Context(), SmallestDisk))
	return disk
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// detached waits for the kernel to clear the loop device after the last unmount.
func detached(t *testing.T, disk *Disk) {
	t.Helper()
	var loops []loopDevice
	for range 50 {
		var err error
		if loops, err = disk.loops(context.Background()); err == nil && len(loops) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s still has %v", disk.file, loops)
}

// fillUp writes until the disk is full and returns how much fitted.
func fillUp(t *testing.T, file string) int64 {
	t.Helper()
	handle, err := os.Create(file)
	must(t, err)
	defer handle.Close()
	chunk := make([]byte, 4*mebibyte)
	written := int64(0)
	for {
		n, err := handle.Write(chunk)
		written += int64(n)
		if errors.Is(err, unix.ENOSPC) {
			return written
		}
		must(t, err)
		if written > 1<<30 {
			t.Fatal("a disk of 300 MiB never fills up")
		}
	}
}

func Test_a_disk_fills_up_grows_while_in_use_and_leaves_no_loop_device(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1")
	target := filepath.Join(place, "mount")
	must(t, disk.Mount(t.Context(), target, false, []string{"noatime"}))

	fitted := fillUp(t, filepath.Join(target, "ballast"))
	if fitted > SmallestDisk {
		t.Errorf("%d MiB fitted into 300", fitted/mebibyte)
	}
	t.Logf("%d MiB fitted into a disk of %d MiB", fitted/mebibyte, SmallestDisk/mebibyte)
	before, err := disk.Usage(t.Context(), target)
	must(t, err)

	must(t, disk.Grow(t.Context(), 2*SmallestDisk))
	must(t, disk.Grow(t.Context(), 2*SmallestDisk))
	after, err := disk.Usage(t.Context(), target)
	must(t, err)
	if after.Bytes-before.Bytes != SmallestDisk {
		t.Errorf("it grew by %d MiB, want %d", (after.Bytes-before.Bytes)/mebibyte, SmallestDisk/mebibyte)
	}
	must(t, os.WriteFile(filepath.Join(target, "more"), make([]byte, 8*mebibyte), 0o600))

	var inUse *InUseError
	if err := disk.Remove(t.Context()); !errors.As(err, &inUse) {
		t.Errorf("removing a mounted disk: %v", err)
	}
	must(t, disk.Unmount(t.Context(), target))
	detached(t, disk)
	must(t, disk.Remove(t.Context()))
	must(t, disk.Remove(t.Context()))
	if _, err := disk.Size(); !errors.Is(err, ErrNoDisk) {
		t.Errorf("after its removal: %v", err)
	}
}

func Test_a_disk_that_grew_while_unmounted_has_its_size_when_mounted(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1")
	must(t, disk.Grow(t.Context(), 2*SmallestDisk))
	target := filepath.Join(place, "mount")
	must(t, disk.Mount(t.Context(), target, false, nil))
	usage, err := disk.Usage(t.Context(), target)
	must(t, err)
	// The log takes 64 MiB of it.
	if usage.Bytes < 2*SmallestDisk-65*mebibyte {
		t.Errorf("the file system has %d MiB", usage.Bytes/mebibyte)
	}
}

func Test_creating_a_disk_again_keeps_what_is_on_it(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1")
	target := filepath.Join(place, "mount")
	must(t, disk.Mount(t.Context(), target, false, nil))
	must(t, os.WriteFile(filepath.Join(target, "word"), []byte("kept"), 0o600))
	must(t, disk.Unmount(t.Context(), target))

	must(t, disk.Create(t.Context(), SmallestDisk))
	must(t, disk.Mount(t.Context(), target, false, nil))
	if word, err := os.ReadFile(filepath.Join(target, "word")); err != nil || string(word) != "kept" {
		t.Errorf("read %q, %v", word, err)
	}
}

func Test_two_pods_share_one_loop_device_and_only_the_reader_is_read_only(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1")
	reader, writer := filepath.Join(place, "reader"), filepath.Join(place, "writer")
	must(t, disk.Mount(t.Context(), reader, true, nil))
	must(t, disk.Mount(t.Context(), writer, false, nil))
	loops, err := disk.loops(t.Context())
	must(t, err)
	if len(loops) != 1 {
		t.Errorf("the file has the loop devices %v", loops)
	}
	must(t, os.WriteFile(filepath.Join(writer, "word"), []byte("seen"), 0o600))
	if word, err := os.ReadFile(filepath.Join(reader, "word")); err != nil || string(word) != "seen" {
		t.Errorf("the reader reads %q, %v", word, err)
	}
	if err := os.WriteFile(filepath.Join(reader, "word"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("the reader writes: %v", err)
	}
	must(t, disk.Unmount(t.Context(), writer))
	var wrong *WrongMountError
	if err := disk.Grow(t.Context(), 2*SmallestDisk); !errors.As(err, &wrong) {
		t.Errorf("growing what is only read: %v", err)
	}
	must(t, disk.Unmount(t.Context(), reader))
	detached(t, disk)
}

func Test_a_second_mount_of_the_same_disk_goes_on_when_the_first_pod_leaves(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1")
	first, second := filepath.Join(place, "first"), filepath.Join(place, "second")
	must(t, disk.Mount(t.Context(), first, false, nil))
	must(t, disk.Mount(t.Context(), second, false, nil))
	must(t, disk.Unmount(t.Context(), first))
	must(t, os.WriteFile(filepath.Join(second, "word"), []byte("still here"), 0o600))
	must(t, disk.Unmount(t.Context(), second))
	detached(t, disk)
}

func Test_something_else_at_the_target_is_neither_taken_for_the_disk_nor_unmounted(t *testing.T) {
	disks, place := given(t)
	mine, other := created(t, disks, "pvc-1"), created(t, disks, "pvc-2")
	target := filepath.Join(place, "mount")
	must(t, other.Mount(t.Context(), target, false, nil))
	var wrong *WrongMountError
	if err := mine.Mount(t.Context(), target, false, nil); !errors.As(err, &wrong) {
		t.Errorf("mounting over another disk: %v", err)
	}
	if _, err := mine.Usage(t.Context(), target); !errors.As(err, &wrong) {
		t.Errorf("measuring another disk: %v", err)
	}
	if _, err := other.Usage(t.Context(), target); err != nil {
		t.Errorf("the other disk is no longer mounted: %v", err)
	}
}

func Test_a_mount_that_is_not_shared_is_refused_and_undone(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1")
	private := filepath.Join(place, "private")
	must(t, os.Mkdir(private, 0o700))
	must(t, unix.Mount(private, private, "", unix.MS_BIND, ""))
	must(t, unix.Mount("", private, "", unix.MS_PRIVATE, ""))
	target := filepath.Join(private, "mount")
	var wrong *WrongMountError
	if err := disk.Mount(t.Context(), target, false, nil); !errors.As(err, &wrong) {
		t.Errorf("mounting where nobody else sees it: %v", err)
	}
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target is still there: %v", err)
	}
	detached(t, disk)
}

func Test_unmounting_never_removes_files(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1")
	target := filepath.Join(place, "mount")
	must(t, os.Mkdir(target, 0o700))
	must(t, os.WriteFile(filepath.Join(target, "astray"), nil, 0o600))
	if err := disk.Unmount(t.Context(), target); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("unmounting a directory with files in it: %v", err)
	}
	if _, err := os.Stat(filepath.Join(target, "astray")); err != nil {
		t.Error(err)
	}
}

func Test_more_than_the_store_can_keep_is_refused_and_leaves_nothing(t *testing.T) {
	disks, _ := given(t)
	room, err := disks.unpromised()
	must(t, err)
	// A first volume is promised nearly everything, without taking it.
	hoarder, err := disks.Disk("pvc-1")
	must(t, err)
	must(t, hoarder.Create(t.Context(), wholeSize(room-4*SmallestDisk)))

	second, err := disks.Disk("pvc-2")
	must(t, err)
	var noRoom *NoRoomError
	if err := second.Create(t.Context(), 5*SmallestDisk); !errors.As(err, &noRoom) {
		t.Errorf("a volume for which there is no room: %v", err)
	}
	if err := hoarder.Grow(t.Context(), room+5*SmallestDisk); !errors.As(err, &noRoom) {
		t.Errorf("growth for which there is no room: %v", err)
	}
	entries, err := os.ReadDir(disks.dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func Test_free_space_is_promised_as_often_as_was_allowed(t *testing.T) {
	disks, _ := given(t)
	once, err := disks.unpromised()
	must(t, err)
	thin, err := OpenDisks(disks.dir, 4)
	must(t, err)
	larger, err := thin.Disk("pvc-1")
	must(t, err)
	must(t, larger.Create(t.Context(), wholeSize(2*once)))
	second, err := thin.Disk("pvc-2")
	must(t, err)
	var noRoom *NoRoomError
	if err := second.Create(t.Context(), wholeSize(3*once)); !errors.As(err, &noRoom) {
		t.Errorf("five times the free space: %v", err)
	}
}

func Test_what_an_interrupted_mkfs_left_is_cleared_at_the_next_start(t *testing.T) {
	disks, _ := given(t)
	left := filepath.Join(disks.dir, "pvc-1"+fileSuffix+unfinishedSuffix)
	must(t, os.WriteFile(left, nil, 0o600))
	_, err := OpenDisks(disks.dir, 1)
	must(t, err)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func Test_a_name_cannot_lead_out_of_the_directory(t *testing.T) {
	disks := &Disks{dir: "/volumes"}
	for _, name := range []string{"", ".", "..", "../etc/passwd", "a/b", ".hidden", "a\x00b"} {
		if _, err := disks.Disk(name); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}

func Test_a_commands_complaint_is_in_the_error_and_its_time_is_bounded(t *testing.T) {
	_, err := run(t.Context(), "sh", "-c", "echo no such luck >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no such luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("the error is: %v", err)
	}
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := run(brief, "sleep", "60"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is: %v", err)
	}
}

func Test_a_volume_is_worked_on_by_one_at_a_time(t *testing.T) {
	var turns turns
	release, err := turns.take(t.Context(), "pvc-1")
	must(t, err)
	other, err := turns.take(t.Context(), "pvc-2")
	must(t, err)
	other()
	brief, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := turns.take(brief, "pvc-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second got its turn: %v", err)
	}
	release()
	release, err = turns.take(t.Context(), "pvc-1")
	must(t, err)
	release()
}
