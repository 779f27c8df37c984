package csi

// Tests of the reconcile loop on real disks with a fake API server. The fake does not handle finalizers, so tests create
// terminating volumes with a deletion timestamp.

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"
)

// fixture is a running loop with its fake API server and its disks.
type fixture struct {
	*testing.T
	client *fake.Clientset
	disks  *Disks
	dir    string
}

func startLoop(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	disks, dir := testDisks(t)
	return startLoopOn(t, disks, dir, objects...)
}

func startLoopOn(t *testing.T, disks *Disks, dir string, objects ...runtime.Object) *fixture {
	t.Helper()
	client := fake.NewClientset(append(objects, labDisk(core.PersistentVolumeReclaimDelete))...)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- NewClaims(client, disks, here).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		check(t, <-ended)
	})
	return &fixture{t, client, disks, dir}
}

// eventually waits until the condition holds.
func (s *fixture) eventually(condition string, holds func() bool) {
	s.Helper()
	for range 100 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.Fatalf("timed out: %s", condition)
}

func (s *fixture) volume() *core.PersistentVolume {
	volume, err := s.client.CoreV1().PersistentVolumes().Get(s.Context(), "pvc-1234", meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	check(s.T, err)
	return volume
}

func (s *fixture) claim() *core.PersistentVolumeClaim {
	claim, err := s.client.CoreV1().PersistentVolumeClaims("team").Get(s.Context(), "data", meta.GetOptions{})
	check(s.T, err)
	return claim
}

func (s *fixture) hasEvent(reason, part string) bool {
	events, err := s.client.CoreV1().Events("").List(s.Context(), meta.ListOptions{})
	check(s.T, err)
	for _, event := range events.Items {
		if event.Reason == reason && strings.Contains(event.Message, part) {
			return true
		}
	}
	return false
}

func fileExists(disks *Disks) bool {
	_, err := os.Stat(filepath.Join(disks.dir, "pvc-1234"+fileSuffix))
	return err == nil
}

func Test_a_claim_on_this_node_gets_a_file_and_a_volume(t *testing.T) {
	s := startLoop(t, pending())
	s.eventually("the volume exists", func() bool { return s.volume() != nil })
	disk, err := s.disks.Disk("pvc-1234")
	check(t, err)
	if size, err := disk.Size(); err != nil || size != 1<<30 {
		t.Errorf("the file has %d bytes, %v", size, err)
	}
	s.eventually("the claim has an event", func() bool { return s.hasEvent("ProvisioningSucceeded", "pvc-1234") })
}

func Test_a_claim_for_a_block_volume_is_rejected_with_an_event(t *testing.T) {
	block := core.PersistentVolumeBlock
	s := startLoop(t, pending(func(c *core.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }))
	s.eventually("the claim has an event", func() bool { return s.hasEvent("ProvisioningFailed", "Block") })
	if s.volume() != nil || fileExists(s.disks) {
		t.Error("a volume or a file was created")
	}
}

func Test_a_claim_larger_than_the_free_space_is_rejected_with_an_event(t *testing.T) {
	s := startLoop(t, pending(requesting("1Pi")))
	s.eventually("the claim has an event", func() bool { return s.hasEvent("ProvisioningFailed", "free some space") })
	if s.volume() != nil || fileExists(s.disks) {
		t.Error("a volume or a file was created")
	}
}

func Test_a_claim_of_another_driver_is_ignored(t *testing.T) {
	class := labDisk(core.PersistentVolumeReclaimDelete)
	class.Name, class.Provisioner = "other", "other"
	s := startLoop(t, class, pending(func(c *core.PersistentVolumeClaim) { c.Spec.StorageClassName = &class.Name }))
	time.Sleep(300 * time.Millisecond)
	if s.volume() != nil || fileExists(s.disks) {
		t.Error("a volume or a file was created")
	}
}

func Test_the_file_of_a_claim_deleted_before_its_volume_exists_is_removed(t *testing.T) {
	disks, dir := testDisks(t)
	s := startLoopOn(t, disks, dir)
	s.client.PrependReactor("create", "persistentvolumes", func(clienttest.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(os.ErrDeadlineExceeded)
	})
	_, err := s.client.CoreV1().PersistentVolumeClaims("team").Create(t.Context(), pending(), meta.CreateOptions{})
	check(t, err)
	s.eventually("the file exists", func() bool { return fileExists(disks) })
	check(t, s.client.CoreV1().PersistentVolumeClaims("team").Delete(t.Context(), "data", meta.DeleteOptions{}))
	s.eventually("the file is removed", func() bool { return !fileExists(disks) })
}

func Test_expansion_of_a_mounted_volume_updates_volume_and_claim(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1234")
	check(t, disk.Grow(t.Context(), 1<<30))
	target := filepath.Join(dir, "pod")
	check(t, disk.Mount(t.Context(), target, false, nil))
	before, err := disk.Usage(t.Context(), target)
	check(t, err)

	s := startLoopOn(t, disks, dir, volumeIn(core.VolumeBound, core.PersistentVolumeReclaimDelete), bound(requesting("2Gi")))
	s.eventually("the claim has the new capacity", func() bool {
		status := s.claim().Status
		return status.Capacity.Storage().String() == "2Gi" && status.AllocatedResources.Storage().String() == "2Gi"
	})
	if capacity := s.volume().Spec.Capacity.Storage().String(); capacity != "2Gi" {
		t.Errorf("the volume has %s", capacity)
	}
	after, err := disk.Usage(t.Context(), target)
	check(t, err)
	if after.Bytes-before.Bytes != 1<<30 {
		t.Errorf("the file system grew by %d bytes", after.Bytes-before.Bytes)
	}
}

func Test_a_claim_is_not_expanded_when_its_class_forbids_it(t *testing.T) {
	disks, dir := testDisks(t)
	createDisk(t, disks, "pvc-1234")
	class := labDisk(core.PersistentVolumeReclaimDelete)
	class.Name, class.AllowVolumeExpansion = "lab-disk-fixed", nil
	claim := bound(requesting("2Gi"), func(c *core.PersistentVolumeClaim) { c.Spec.StorageClassName = &class.Name })
	s := startLoopOn(t, disks, dir, class, claim, volumeIn(core.VolumeBound, core.PersistentVolumeReclaimDelete))
	s.eventually("the claim has an event", func() bool { return s.hasEvent("VolumeResizeFailed", "does not allow") })
	if capacity := s.volume().Spec.Capacity.Storage().String(); capacity != "1Gi" {
		t.Errorf("the volume has %s", capacity)
	}
}

func Test_a_volume_released_while_the_node_was_off_is_deleted(t *testing.T) {
	disks, dir := testDisks(t)
	createDisk(t, disks, "pvc-1234")
	s := startLoopOn(t, disks, dir, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete))
	s.eventually("the volume is deleted", func() bool { return s.volume() == nil })
	if fileExists(disks) {
		t.Error("the file still exists")
	}
}

func Test_a_volume_deleted_while_the_node_was_off_loses_its_finalizer(t *testing.T) {
	disks, dir := testDisks(t)
	createDisk(t, disks, "pvc-1234")
	s := startLoopOn(t, disks, dir, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete, beingDeleted))
	s.eventually("the volume has no finalizer", func() bool { return s.volume() == nil || len(s.volume().Finalizers) == 0 })
	if fileExists(disks) {
		t.Error("the file still exists")
	}
}

func Test_a_deleted_volume_with_policy_Retain_keeps_its_file(t *testing.T) {
	disks, dir := testDisks(t)
	createDisk(t, disks, "pvc-1234")
	s := startLoopOn(t, disks, dir, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimRetain, beingDeleted))
	s.eventually("the volume has no finalizer", func() bool { return s.volume() == nil || len(s.volume().Finalizers) == 0 })
	if !fileExists(disks) {
		t.Error("the file was removed")
	}
}

func Test_a_released_volume_with_a_claim_keeps_its_file(t *testing.T) {
	disks, dir := testDisks(t)
	createDisk(t, disks, "pvc-1234")
	s := startLoopOn(t, disks, dir, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete), bound())
	time.Sleep(300 * time.Millisecond)
	if s.volume() == nil || !fileExists(disks) {
		t.Error("the volume or its file was removed")
	}
}

func Test_a_released_volume_is_deleted_after_it_is_unmounted(t *testing.T) {
	disks, dir := testDisks(t)
	disk := createDisk(t, disks, "pvc-1234")
	target := filepath.Join(dir, "pod")
	check(t, disk.Mount(t.Context(), target, false, nil))
	s := startLoopOn(t, disks, dir, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete))
	s.eventually("the volume has a warning event", func() bool { return s.hasEvent("VolumeFailedDelete", "still in use by /dev/loop") })
	if s.volume() == nil || !fileExists(disks) {
		t.Fatal("the volume or its file was removed")
	}
	check(t, disk.Unmount(t.Context(), target))
	s.eventually("the volume is deleted", func() bool { return s.volume() == nil })
	if fileExists(disks) {
		t.Error("the file still exists")
	}
}
