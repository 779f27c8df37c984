package csi

// The loop on real disks, against an API server that is a map: it keeps no finalizers of its own accord, so volumes
// under deletion are given as such.

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

// stage is a running loop and what it works on.
type stage struct {
	*testing.T
	client *fake.Clientset
	disks  *Disks
	place  string
}

func running(t *testing.T, objects ...runtime.Object) *stage {
	t.Helper()
	disks, place := given(t)
	return runningOn(t, disks, place, objects...)
}

func runningOn(t *testing.T, disks *Disks, place string, objects ...runtime.Object) *stage {
	t.Helper()
	client := fake.NewClientset(append(objects, labDisk(core.PersistentVolumeReclaimDelete))...)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- NewClaims(client, disks, here).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	return &stage{t, client, disks, place}
}

// eventually waits for the loop to bring something about.
func (s *stage) eventually(what string, holds func() bool) {
	s.Helper()
	for range 100 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.Fatalf("never: %s", what)
}

func (s *stage) volume() *core.PersistentVolume {
	volume, err := s.client.CoreV1().PersistentVolumes().Get(s.Context(), "pvc-1234", meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(s.T, err)
	return volume
}

func (s *stage) claim() *core.PersistentVolumeClaim {
	claim, err := s.client.CoreV1().PersistentVolumeClaims("team").Get(s.Context(), "data", meta.GetOptions{})
	must(s.T, err)
	return claim
}

func (s *stage) hasEvent(reason, part string) bool {
	events, err := s.client.CoreV1().Events("").List(s.Context(), meta.ListOptions{})
	must(s.T, err)
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

func Test_a_claim_placed_here_gets_a_file_and_a_volume(t *testing.T) {
	s := running(t, pending())
	s.eventually("the volume is made", func() bool { return s.volume() != nil })
	disk, err := s.disks.Disk("pvc-1234")
	must(t, err)
	if size, err := disk.Size(); err != nil || size != 1<<30 {
		t.Errorf("its file has %d bytes, %v", size, err)
	}
	s.eventually("the claim is told", func() bool { return s.hasEvent("ProvisioningSucceeded", "pvc-1234") })
}

func Test_a_claim_for_a_block_device_is_refused_with_an_event(t *testing.T) {
	block := core.PersistentVolumeBlock
	s := running(t, pending(func(c *core.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }))
	s.eventually("the claim is told", func() bool { return s.hasEvent("ProvisioningFailed", "Block") })
	if s.volume() != nil || fileExists(s.disks) {
		t.Error("something was made all the same")
	}
}

func Test_a_claim_for_more_than_there_is_room_is_refused_with_an_event(t *testing.T) {
	s := running(t, pending(asking("1Pi")))
	s.eventually("the claim is told", func() bool { return s.hasEvent("ProvisioningFailed", "free some space") })
	if s.volume() != nil || fileExists(s.disks) {
		t.Error("something was made all the same")
	}
}

func Test_a_claim_of_somebody_elses_class_is_left_alone(t *testing.T) {
	class := labDisk(core.PersistentVolumeReclaimDelete)
	class.Name, class.Provisioner = "other", "other"
	s := running(t, class, pending(func(c *core.PersistentVolumeClaim) { c.Spec.StorageClassName = &class.Name }))
	time.Sleep(300 * time.Millisecond)
	if s.volume() != nil || fileExists(s.disks) {
		t.Error("something was made for it")
	}
}

func Test_the_file_of_a_claim_that_goes_before_its_volume_is_made_goes_too(t *testing.T) {
	disks, place := given(t)
	s := runningOn(t, disks, place)
	s.client.PrependReactor("create", "persistentvolumes", func(clienttest.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(os.ErrDeadlineExceeded)
	})
	_, err := s.client.CoreV1().PersistentVolumeClaims("team").Create(t.Context(), pending(), meta.CreateOptions{})
	must(t, err)
	s.eventually("the file is made", func() bool { return fileExists(disks) })
	must(t, s.client.CoreV1().PersistentVolumeClaims("team").Delete(t.Context(), "data", meta.DeleteOptions{}))
	s.eventually("the file is gone", func() bool { return !fileExists(disks) })
}

func Test_a_mounted_volume_grows_and_both_objects_tell_it(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1234")
	must(t, disk.Grow(t.Context(), 1<<30))
	target := filepath.Join(place, "pod")
	must(t, disk.Mount(t.Context(), target, false, nil))
	before, err := disk.Usage(t.Context(), target)
	must(t, err)

	s := runningOn(t, disks, place, volumeIn(core.VolumeBound, core.PersistentVolumeReclaimDelete), bound(asking("2Gi")))
	s.eventually("the claim is told", func() bool {
		status := s.claim().Status
		return status.Capacity.Storage().String() == "2Gi" && status.AllocatedResources.Storage().String() == "2Gi"
	})
	if capacity := s.volume().Spec.Capacity.Storage().String(); capacity != "2Gi" {
		t.Errorf("the volume tells %s", capacity)
	}
	after, err := disk.Usage(t.Context(), target)
	must(t, err)
	if after.Bytes-before.Bytes != 1<<30 {
		t.Errorf("it grew by %d bytes", after.Bytes-before.Bytes)
	}
}

func Test_a_claim_whose_class_forbids_it_does_not_grow(t *testing.T) {
	disks, place := given(t)
	created(t, disks, "pvc-1234")
	class := labDisk(core.PersistentVolumeReclaimDelete)
	class.Name, class.AllowVolumeExpansion = "lab-disk-fixed", nil
	claim := bound(asking("2Gi"), func(c *core.PersistentVolumeClaim) { c.Spec.StorageClassName = &class.Name })
	s := runningOn(t, disks, place, class, claim, volumeIn(core.VolumeBound, core.PersistentVolumeReclaimDelete))
	s.eventually("the claim is told", func() bool { return s.hasEvent("VolumeResizeFailed", "does not allow") })
	if capacity := s.volume().Spec.Capacity.Storage().String(); capacity != "1Gi" {
		t.Errorf("the volume tells %s", capacity)
	}
}

func Test_a_volume_released_while_the_node_was_off_is_destroyed_at_its_return(t *testing.T) {
	disks, place := given(t)
	created(t, disks, "pvc-1234")
	s := runningOn(t, disks, place, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete))
	s.eventually("the volume is gone", func() bool { return s.volume() == nil })
	if fileExists(disks) {
		t.Error("its file is still there")
	}
}

func Test_a_volume_deleted_while_the_node_was_off_loses_file_and_finalizer_at_its_return(t *testing.T) {
	disks, place := given(t)
	created(t, disks, "pvc-1234")
	s := runningOn(t, disks, place, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete, beingDeleted))
	s.eventually("nothing holds the volume", func() bool { return s.volume() == nil || len(s.volume().Finalizers) == 0 })
	if fileExists(disks) {
		t.Error("its file is still there")
	}
}

func Test_a_retained_volume_that_a_person_deletes_leaves_its_file(t *testing.T) {
	disks, place := given(t)
	created(t, disks, "pvc-1234")
	s := runningOn(t, disks, place, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimRetain, beingDeleted))
	s.eventually("nothing holds the volume", func() bool { return s.volume() == nil || len(s.volume().Finalizers) == 0 })
	if !fileExists(disks) {
		t.Error("its file is gone")
	}
}

func Test_a_volume_that_is_called_released_but_has_its_claim_keeps_its_file(t *testing.T) {
	disks, place := given(t)
	created(t, disks, "pvc-1234")
	s := runningOn(t, disks, place, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete), bound())
	time.Sleep(300 * time.Millisecond)
	if s.volume() == nil || !fileExists(disks) {
		t.Error("the volume or its file is gone")
	}
}

func Test_a_released_volume_is_destroyed_only_when_it_is_unmounted(t *testing.T) {
	disks, place := given(t)
	disk := created(t, disks, "pvc-1234")
	target := filepath.Join(place, "pod")
	must(t, disk.Mount(t.Context(), target, false, nil))
	s := runningOn(t, disks, place, volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete))
	s.eventually("the volume is told", func() bool { return s.hasEvent("VolumeFailedDelete", "still in use by /dev/loop") })
	if s.volume() == nil || !fileExists(disks) {
		t.Fatal("the volume or its file is gone")
	}
	must(t, disk.Unmount(t.Context(), target))
	s.eventually("the volume is gone", func() bool { return s.volume() == nil })
	if fileExists(disks) {
		t.Error("its file is still there")
	}
}
