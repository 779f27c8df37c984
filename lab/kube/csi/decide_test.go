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

// pending is a claim for one gibibyte that the scheduler has placed on this node.
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

// bound is the same claim with its volume.
func bound(change ...func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	return pending(append([]func(*core.PersistentVolumeClaim){func(claim *core.PersistentVolumeClaim) {
		claim.Spec.VolumeName = volumeName(claim)
		claim.Status.Phase = core.ClaimBound
		claim.Status.Capacity = storageOf("1Gi")
	}}, change...)...)
}

func asking(size string) func(*core.PersistentVolumeClaim) {
	return func(claim *core.PersistentVolumeClaim) { claim.Spec.Resources.Requests = storageOf(size) }
}

func labDisk(policy core.PersistentVolumeReclaimPolicy) *storage.StorageClass {
	grows := true
	return &storage.StorageClass{
		ObjectMeta: meta.ObjectMeta{Name: "lab-disk"}, Provisioner: Driver, ReclaimPolicy: &policy,
		AllowVolumeExpansion: &grows, MountOptions: []string{"noatime"},
	}
}

// volumeIn is the volume of that claim, in a phase.
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

func Test_a_size_is_rounded_up_to_what_a_disk_can_be(t *testing.T) {
	for asked, want := range map[int64]int64{
		0: SmallestDisk, 1: SmallestDisk, SmallestDisk: SmallestDisk, SmallestDisk + 1: SmallestDisk + mebibyte,
		1 << 30: 1 << 30, 1_000_000_000: 954 * mebibyte,
	} {
		if got := wholeSize(asked); got != want {
			t.Errorf("%d is rounded to %d, want %d", asked, got, want)
		}
	}
}

func Test_who_gets_a_volume(t *testing.T) {
	for sentence, given := range map[string]struct {
		claim *core.PersistentVolumeClaim
		want  bool
	}{
		"an unbound claim placed on this node does":           {pending(), true},
		"a claim placed on another node does not":             {pending(func(c *core.PersistentVolumeClaim) { c.Annotations[selectedNode] = elsewhere }), false},
		"a claim that the scheduler has not placed does not":  {pending(func(c *core.PersistentVolumeClaim) { c.Annotations = nil }), false},
		"a claim that has a volume does not":                  {bound(), false},
		"a claim that is being deleted does not, it may wait": {pending(func(c *core.PersistentVolumeClaim) { c.DeletionTimestamp = &deleted }), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := awaitsVolume(given.claim, here); got != given.want {
				t.Errorf("awaits a volume: %t, want %t", got, given.want)
			}
		})
	}
}

func Test_what_cannot_be_had_is_refused_in_words(t *testing.T) {
	block := core.PersistentVolumeBlock
	if why := whyNotProvision(pending(func(c *core.PersistentVolumeClaim) { c.Spec.VolumeMode = &block })); why == "" {
		t.Error("a block volume is not refused")
	}
	copied := &core.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
	if why := whyNotProvision(pending(func(c *core.PersistentVolumeClaim) { c.Spec.DataSource = copied })); why == "" {
		t.Error("a copy of another volume is not refused, it would be empty")
	}
	if why := whyNotProvision(pending()); why != "" {
		t.Errorf("an ordinary claim is refused: %s", why)
	}
}

func Test_a_new_volume_carries_all_that_binds_it_to_its_claim_and_its_node(t *testing.T) {
	volume := volumeFor(pending(asking("1000M")), labDisk(core.PersistentVolumeReclaimRetain), here)
	spec := volume.Spec
	for what, wrong := range map[string]bool{
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
		"node":          !isHere(volume, here) || isHere(volume, elsewhere),
	} {
		if wrong {
			t.Errorf("its %s is wrong: %+v", what, volume)
		}
	}
}

func Test_the_fate_of_a_volume(t *testing.T) {
	const del, retain = core.PersistentVolumeReclaimDelete, core.PersistentVolumeReclaimRetain
	without := func(volume *core.PersistentVolume) { volume.Finalizers = []string{"kubernetes.io/pv-protection"} }
	for sentence, given := range map[string]struct {
		volume *core.PersistentVolume
		claim  *core.PersistentVolumeClaim
		want   Fate
	}{
		"a bound volume is kept":                                          {volumeIn(core.VolumeBound, del), bound(), Keep},
		"a volume that waits to be bound is kept":                         {volumeIn(core.VolumeAvailable, del), pending(), Keep},
		"a bound volume whose claim has just gone is kept until released": {volumeIn(core.VolumeBound, del), nil, Keep},
		"a released volume with policy Delete is destroyed":               {volumeIn(core.VolumeReleased, del), nil, Destroy},
		"a failed volume with policy Delete is destroyed":                 {volumeIn(core.VolumeFailed, del), nil, Destroy},
		"a released volume with policy Retain is kept":                    {volumeIn(core.VolumeReleased, retain), nil, Keep},
		"a volume called released whose claim lives is kept":              {volumeIn(core.VolumeReleased, del), bound(), Keep},
		"a deleted volume is kept while its claim is bound to it":         {volumeIn(core.VolumeBound, del, beingDeleted), bound(), Keep},
		"a deleted volume whose claim is not bound to it is destroyed":    {volumeIn(core.VolumeAvailable, del, beingDeleted), pending(), Destroy},
		"a deleted volume without a claim is destroyed":                   {volumeIn(core.VolumeReleased, del, beingDeleted), nil, Destroy},
		"a retained volume that a person deletes is let go":               {volumeIn(core.VolumeReleased, retain, beingDeleted), nil, LetGo},
		"a retained volume let go before is left to others":               {volumeIn(core.VolumeReleased, retain, beingDeleted, without), nil, Keep},
		"a destroyed volume that others still hold is left to them":       {volumeIn(core.VolumeReleased, del, beingDeleted, without), nil, Keep},
		"a volume of another node is kept": {volumeIn(core.VolumeReleased, del, func(v *core.PersistentVolume) {
			v.Spec.NodeAffinity = onlyOn(elsewhere)
		}), nil, Keep},
		"a volume of another driver is kept": {volumeIn(core.VolumeReleased, del, func(v *core.PersistentVolume) {
			v.Spec.CSI.Driver = "other"
		}), nil, Keep},
		"a volume that is on no particular node is kept": {volumeIn(core.VolumeReleased, del, func(v *core.PersistentVolume) {
			v.Spec.NodeAffinity = nil
		}), nil, Keep},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := fateOf(given.volume, given.claim, here); got != given.want {
				t.Errorf("its fate is %q, want %q", got, given.want)
			}
		})
	}
}

func Test_a_later_claim_of_the_same_name_is_not_the_volumes_claim(t *testing.T) {
	volume := volumeIn(core.VolumeReleased, core.PersistentVolumeReclaimDelete)
	if claimOf(volume, pending()) == nil {
		t.Error("its own claim is not recognised")
	}
	if claimOf(volume, pending(func(c *core.PersistentVolumeClaim) { c.UID = "5678" })) != nil {
		t.Error("another claim is taken for its own")
	}
}

func Test_when_a_volume_grows(t *testing.T) {
	volume := volumeIn(core.VolumeBound, core.PersistentVolumeReclaimDelete)
	for sentence, given := range map[string]struct {
		claim *core.PersistentVolumeClaim
		want  Growth
	}{
		"a claim that has what it asks for stays":            {bound(), NoGrowth},
		"a claim that asks for more grows":                   {bound(asking("2Gi")), GrowDisk},
		"a claim that asks for less stays":                   {bound(asking("512Mi")), NoGrowth},
		"a claim that was not told of its growth is told":    {bound(func(c *core.PersistentVolumeClaim) { c.Status.Capacity = storageOf("512Mi") }), TellClaim},
		"a claim that is not yet bound waits":                {bound(asking("2Gi"), func(c *core.PersistentVolumeClaim) { c.Status.Phase = core.ClaimPending }), NoGrowth},
		"a claim that is being deleted stays":                {bound(asking("2Gi"), func(c *core.PersistentVolumeClaim) { c.DeletionTimestamp = &deleted }), NoGrowth},
		"a claim that the volume was not made for gets none": {bound(asking("2Gi"), func(c *core.PersistentVolumeClaim) { c.UID = "5678" }), NoGrowth},
	} {
		t.Run(sentence, func(t *testing.T) {
			claim := given.claim
			claim.Spec.VolumeName = volume.Name
			if got := growthOf(claim, volume, here); got != given.want {
				t.Errorf("growth %q, want %q", got, given.want)
			}
		})
	}
}

func Test_a_class_that_says_nothing_of_expansion_forbids_it(t *testing.T) {
	class := labDisk(core.PersistentVolumeReclaimDelete)
	if !allowsGrowth(class) {
		t.Error("a class that allows it does not")
	}
	class.AllowVolumeExpansion = nil
	if allowsGrowth(class) {
		t.Error("a class that says nothing allows it")
	}
}

func Test_mountinfo_is_read_with_its_escapes_tags_and_both_kinds_of_options(t *testing.T) {
	mounts := mountPointsFrom(`42 27 7:0 / /var/a\040b rw,relatime shared:5 master:2 - xfs /dev/loop0 rw,inode64
43 27 7:0 /sub /var/c ro,relatime - xfs /dev/loop0 rw,inode64
44 27 7:1 / /var/d rw - xfs /dev/loop1 ro
a line that makes no sense
`)
	want := []mountPoint{
		{device: "7:0", root: "/", path: "/var/a b", shared: true},
		{device: "7:0", root: "/sub", path: "/var/c", readOnly: true},
		{device: "7:1", root: "/", path: "/var/d", readOnly: true},
	}
	if len(mounts) != len(want) {
		t.Fatalf("read %+v", mounts)
	}
	for i := range want {
		if mounts[i] != want[i] {
			t.Errorf("line %d is read as %+v, want %+v", i+1, mounts[i], want[i])
		}
	}
}
