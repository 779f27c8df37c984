package csi

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const here, elsewhere = "node-1", "node-2"

var deleted = meta.NewTime(time.Unix(1700000000, 0))

// pending returns a claim for one GiB that the scheduler has placed on this node.
func pending(change ...func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	class := "lab-disk"
	claim := &core.PersistentVolumeClaim{
		ObjectMeta: meta.ObjectMeta{
			Namespace: "team", Name: "data", UID: "1234", Annotations: map[string]string{selectedNode: here},
		},
		Spec: core.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
			Resources:        core.VolumeResourceRequirements{Requests: storageOf("1Gi")},
		},
		Status: core.PersistentVolumeClaimStatus{Phase: core.ClaimPending},
	}
	for _, apply := range change {
		apply(claim)
	}
	return claim
}

// bound returns the same claim, bound to its volume.
func bound(change ...func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	return pending(append([]func(*core.PersistentVolumeClaim){func(claim *core.PersistentVolumeClaim) {
		claim.Spec.VolumeName = volumeName(claim)
		claim.Status.Phase = core.ClaimBound
		claim.Status.Capacity = storageOf("1Gi")
	}}, change...)...)
}

func requesting(size string) func(*core.PersistentVolumeClaim) {
	return func(claim *core.PersistentVolumeClaim) { claim.Spec.Resources.Requests = storageOf(size) }
}

func labDisk(policy core.PersistentVolumeReclaimPolicy) *storage.StorageClass {
	allowsExpansion := true
	return &storage.StorageClass{
		ObjectMeta: meta.ObjectMeta{Name: "lab-disk"}, Provisioner: Driver, ReclaimPolicy: &policy,
		AllowVolumeExpansion: &allowsExpansion, MountOptions: []string{"noatime"},
	}
}

// volumeIn returns the volume of that claim in a phase.
func volumeIn(phase core.PersistentVolumePhase, policy core.PersistentVolumeReclaimPolicy, change ...func(*core.PersistentVolume)) *core.PersistentVolume {
	volume := volumeFor(pending(), labDisk(policy), here)
	volume.UID = "volume-1"
	volume.Status.Phase = phase
	for _, apply := range change {
		apply(volume)
	}
	return volume
}

func beingDeleted(volume *core.PersistentVolume) { volume.DeletionTimestamp = &deleted }

func storageOf(size string) core.ResourceList {
	return core.ResourceList{core.ResourceStorage: resource.MustParse(size)}
}

func Test_a_size_is_rounded_up_to_mebibytes_and_the_minimum(t *testing.T) {
	for requested, want := range map[int64]int64{
		0: MinDiskSize, 1: MinDiskSize, MinDiskSize: MinDiskSize, MinDiskSize + 1: MinDiskSize + mebibyte,
		1 << 30: 1 << 30, 1_000_000_000: 954 * mebibyte,
	} {
		if got := roundUpSize(requested); got != want {
			t.Errorf("%d is rounded to %d, want %d", requested, got, want)
		}
	}
}

func Test_which_claims_need_a_volume(t *testing.T) {
	for name, test := range map[string]struct {
		claim *core.PersistentVolumeClaim
		want  bool
	}{
		"an unbound claim on this node does": {pending(), true},
		"a claim on another node does not":   {pending(func(c *core.PersistentVolumeClaim) { c.Annotations[selectedNode] = elsewhere }), false},
		"an unscheduled claim does not":      {pending(func(c *core.PersistentVolumeClaim) { c.Annotations = nil }), false},
		"a bound claim does not":             {bound(), false},
		"a terminating claim does not":       {pending(func(c *core.PersistentVolumeClaim) { c.DeletionTimestamp = &deleted }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := needsVolume(test.claim, here); got != test.want {
				t.Errorf("needs a volume: %t, want %t", got, test.want)
			}
		})
	}
}

func Test_an_unsupported_claim_is_rejected_with_a_reason(t *testing.T) {
	block := core.PersistentVolumeBlock
	if reason := unsupportedReason(pending(func(c *core.PersistentVolumeClaim) { c.Spec.VolumeMode = &block })); reason == "" {
		t.Error("a block volume is not rejected")
	}
	source := &core.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
	if reason := unsupportedReason(pending(func(c *core.PersistentVolumeClaim) { c.Spec.DataSource = source })); reason == "" {
		t.Error("a claim with a data source is not rejected")
	}
	if reason := unsupportedReason(pending()); reason != "" {
		t.Errorf("a supported claim is rejected: %s", reason)
	}
}

func Test_a_new_volume_is_bound_to_its_claim_and_its_node(t *testing.T) {
	volume := volumeFor(pending(requesting("1000M")), labDisk(core.PersistentVolumeReclaimRetain), here)
	spec := volume.Spec
	for field, isWrong := range map[string]bool{
		"name":          volume.Name != "pvc-1234",
		"finalizer":     len(volume.Finalizers) != 1 || volume.Finalizers[0] != Finalizer,
		"annotation":    volume.Annotations[provisionedBy] != Driver,
		"claim":         spec.ClaimRef.UID != "1234" || spec.ClaimRef.Namespace != "team" || spec.ClaimRef.Name != "data",
		"source":        spec.CSI.Driver != Driver || spec.CSI.VolumeHandle != "pvc-1234" || spec.CSI.FSType != "xfs",
		"capacity":      spec.Capacity.Storage().String() != "954Mi",
		"policy":        spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimRetain,
		"class":         spec.StorageClassName != "lab-disk",
		"modes":         len(spec.AccessModes) != 1 || *spec.VolumeMode != core.PersistentVolumeFilesystem,
		"mount options": len(spec.MountOptions) != 1 || spec.MountOptions[0] != "noatime",
		"node":          !isOnNode(volume, here) || isOnNode(volume, elsewhere),
	} {
		if isWrong {
			t.Errorf("the %s is wrong: %+v", field, volume)
		}
	}
}

func Test_the_action_for_a_volume(t *testing.T) {
	const del, retain = core.PersistentVolumeReclaimDelete, core.PersistentVolumeReclaimRetain
	withoutFinalizer := func(volume *core.PersistentVolume) { volume.Finalizers = []string{"kubernetes.io/pv-protection"} }
	for name, test := range map[string]struct {
		volume *core.PersistentVolume
		claim  *core.PersistentVolumeClaim
		want   VolumeAction
	}{
		"a bound volume is kept":                                      {volumeIn(core.VolumeBound, del), bound(), KeepVolume},
		"an unbound volume is kept":                                   {volumeIn(core.VolumeAvailable, del), pending(), KeepVolume},
		"a bound volume without a claim is kept until released":       {volumeIn(core.VolumeBound, del), nil, KeepVolume},
		"a released volume with policy Delete is deleted":             {volumeIn(core.VolumeReleased, del), nil, DeleteFileAndVolume},
		"a failed volume with policy Delete is deleted":               {volumeIn(core.VolumeFailed, del), nil, DeleteFileAndVolume},
		"a released volume with policy Retain is kept":                {volumeIn(core.VolumeReleased, retain), nil, KeepVolume},
		"a released volume whose claim exists is kept":                {volumeIn(core.VolumeReleased, del), bound(), KeepVolume},
		"a terminating volume is kept while its claim is bound to it": {volumeIn(core.VolumeBound, del, beingDeleted), bound(), KeepVolume},
		"a terminating volume with an unbound claim is deleted":       {volumeIn(core.VolumeAvailable, del, beingDeleted), pending(), DeleteFileAndVolume},
		"a terminating volume without a claim is deleted":             {volumeIn(core.VolumeReleased, del, beingDeleted), nil, DeleteFileAndVolume},
		"a terminating volume with policy Retain is released":         {volumeIn(core.VolumeReleased, retain, beingDeleted), nil, ReleaseVolume},
		"a terminating volume that was released before is kept":       {volumeIn(core.VolumeReleased, retain, beingDeleted, withoutFinalizer), nil, KeepVolume},
		"a terminating volume without the finalizer is kept":          {volumeIn(core.VolumeReleased, del, beingDeleted, withoutFinalizer), nil, KeepVolume},
		"a volume of another node is kept": {volumeIn(core.VolumeReleased, del, func(v *core.PersistentVolume) {
			v.Spec.NodeAffinity = nodeAffinity(elsewhere)
		}), nil, KeepVolume},
		"a volume of another driver is kept": {volumeIn(core.VolumeReleased, del, func(v *core.PersistentVolume) {
			v.Spec.CSI.Driver = "other"
		}), nil, KeepVolume},
		"a volume without a node affinity is kept": {volumeIn(core.VolumeReleased, del, func(v *core.PersistentVolume) {
			v.Spec.NodeAffinity = nil
		}), nil, KeepVolume},
	} {
		t.Run(name, func(t *testing.T) {
			if got := volumeAction(test.volume, test.claim, here); got != test.want {
				t.Errorf("the action is %q, want %q", got, test.want)
			}
		})
	}
}

func Test_a_later_claim_with_the_same_name_does_not_match_the_volume(t *testing.T) {
	volume := volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete)
	if matchingClaim(volume, pending()) == nil {
		t.Error("the claim of the volume does not match")
	}
	if matchingClaim(volume, pending(func(c *core.PersistentVolumeClaim) { c.UID = "5678" })) != nil {
		t.Error("a claim with another uid matches")
	}
}

func Test_when_a_volume_is_expanded(t *testing.T) {
	volume := volumeIn(core.VolumeBound, core.PersistentVolumeReclaimDelete)
	for name, test := range map[string]struct {
		claim *core.PersistentVolumeClaim
		want  Expansion
	}{
		"a claim with the requested capacity is not expanded": {bound(), NoExpansion},
		"a claim that requests more is expanded":              {bound(requesting("2Gi")), ExpandDisk},
		"a claim that requests less is not expanded":          {bound(requesting("512Mi")), NoExpansion},
		"the outdated status of a claim is updated":           {bound(func(c *core.PersistentVolumeClaim) { c.Status.Capacity = storageOf("512Mi") }), UpdateClaimStatus},
		"an unbound claim is not expanded":                    {bound(requesting("2Gi"), func(c *core.PersistentVolumeClaim) { c.Status.Phase = core.ClaimPending }), NoExpansion},
		"a terminating claim is not expanded":                 {bound(requesting("2Gi"), func(c *core.PersistentVolumeClaim) { c.DeletionTimestamp = &deleted }), NoExpansion},
		"a claim with another uid is not expanded":            {bound(requesting("2Gi"), func(c *core.PersistentVolumeClaim) { c.UID = "5678" }), NoExpansion},
	} {
		t.Run(name, func(t *testing.T) {
			claim := test.claim
			claim.Spec.VolumeName = volume.Name
			if got := expansionFor(claim, volume, here); got != test.want {
				t.Errorf("the expansion is %q, want %q", got, test.want)
			}
		})
	}
}

func Test_a_class_without_allowVolumeExpansion_forbids_expansion(t *testing.T) {
	class := labDisk(core.PersistentVolumeReclaimDelete)
	if !allowsExpansion(class) {
		t.Error("a class with allowVolumeExpansion=true forbids expansion")
	}
	class.AllowVolumeExpansion = nil
	if allowsExpansion(class) {
		t.Error("a class without allowVolumeExpansion allows expansion")
	}
}

func Test_mountinfo_is_parsed(t *testing.T) {
	mounts := parseMountinfo(`42 27 7:0 / /var/a\040b rw,relatime shared:5 master:2 - xfs /dev/loop0 rw,inode64
43 27 7:0 /sub /var/c ro,relatime - xfs /dev/loop0 rw,inode64
44 27 7:1 / /var/d rw - xfs /dev/loop1 ro
an invalid line
`)
	want := []mountPoint{
		{device: "7:0", root: "/", path: "/var/a b", shared: true},
		{device: "7:0", root: "/sub", path: "/var/c", readOnly: true},
		{device: "7:1", root: "/", path: "/var/d", readOnly: true},
	}
	if len(mounts) != len(want) {
		t.Fatalf("parsed %+v", mounts)
	}
	for i := range want {
		if mounts[i] != want[i] {
			t.Errorf("line %d is parsed as %+v, want %+v", i+1, mounts[i], want[i])
		}
	}
}
