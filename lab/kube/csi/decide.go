package csi

// What should happen to a claim or a volume: decisions without side effects, on objects as they were read.

import (
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	// Finalizer keeps a volume's object until its node has dealt with the file, however long the node is off.
	Finalizer = Driver + "/file"
)

// wholeSize rounds what was asked for up to what a disk can be: whole mebibytes, and no less than XFS accepts.
func wholeSize(asked int64) int64 {
	return max((asked+mebibyte-1)/mebibyte*mebibyte, SmallestDisk)
}

func sizeOf(claim *core.PersistentVolumeClaim) int64 {
	return wholeSize(claim.Spec.Resources.Requests.Storage().Value())
}

// volumeName is the name of the volume that is made for a claim.
func volumeName(claim *core.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// awaitsVolume: the claim is unbound and the scheduler has chosen this node for it.
func awaitsVolume(claim *core.PersistentVolumeClaim, node string) bool {
	return claim.Spec.VolumeName == "" && claim.Annotations[selectedNode] == node && claim.DeletionTimestamp == nil
}

// whyNotProvision names what this driver cannot do for a claim, or is empty.
func whyNotProvision(claim *core.PersistentVolumeClaim) string {
	if mode := claim.Spec.VolumeMode; mode != nil && *mode != core.PersistentVolumeFilesystem {
		return fmt.Sprintf("volumes of %s have a file system, volumeMode %s cannot be had", Driver, *mode)
	}
	if claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return fmt.Sprintf("volumes of %s start empty, a data source cannot be had", Driver)
	}
	return ""
}

// volumeFor is the volume that fulfils a claim, on this node only.
func volumeFor(claim *core.PersistentVolumeClaim, class *storage.StorageClass, node string) *core.PersistentVolume {
	// The API's own default for classes.
	reclaim := core.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	mode := core.PersistentVolumeFilesystem
	name := volumeName(claim)
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{provisionedBy: Driver},
			Finalizers:  []string{Finalizer},
		},
		Spec: core.PersistentVolumeSpec{
			Capacity:    core.ResourceList{core.ResourceStorage: *resource.NewQuantity(sizeOf(claim), resource.BinarySI)},
			AccessModes: claim.Spec.AccessModes,
			PersistentVolumeSource: core.PersistentVolumeSource{
				CSI: &core.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: name, FSType: "xfs"},
			},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeReclaimPolicy: reclaim,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			VolumeMode:                    &mode,
			NodeAffinity:                  onlyOn(node),
		},
	}
}

func onlyOn(node string) *core.VolumeNodeAffinity {
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
		MatchExpressions: []core.NodeSelectorRequirement{{
			Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node},
		}},
	}}}}
}

// isHere: the volume is one of this driver's, with its file on this node and no other.
func isHere(volume *core.PersistentVolume, node string) bool {
	if volume.Spec.CSI == nil || volume.Spec.CSI.Driver != Driver {
		return false
	}
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return false
	}
	terms := volume.Spec.NodeAffinity.Required.NodeSelectorTerms
	return len(terms) == 1 && slices.ContainsFunc(terms[0].MatchExpressions, func(rule core.NodeSelectorRequirement) bool {
		return rule.Key == core.LabelHostname && rule.Operator == core.NodeSelectorOpIn && slices.Equal(rule.Values, []string{node})
	})
}

// Fate is what becomes of a volume.
type Fate string

const (
	// Keep leaves volume and file alone.
	Keep Fate = "keep"
	// Destroy deletes the file, then the volume's object.
	Destroy Fate = "destroy"
	// LetGo lets the object go and keeps the file.
	LetGo Fate = "let go"
)

// mayNeedWork is what a cache can tell: whether it is worth reading a volume and its claim from the API server.
func mayNeedWork(volume *core.PersistentVolume, node string) bool {
	released := volume.Status.Phase == core.VolumeReleased || volume.Status.Phase == core.VolumeFailed
	return isHere(volume, node) && (volume.DeletionTimestamp != nil || released)
}

// fateOf decides over a volume, given the claim that its claimRef names (nil: there is none, or another of that name).
func fateOf(volume *core.PersistentVolume, claim *core.PersistentVolumeClaim, node string) Fate {
	if !mayNeedWork(volume, node) {
		return Keep
	}
	goes := volume.DeletionTimestamp != nil
	if claim != nil && (claim.Spec.VolumeName == volume.Name || !goes) {
		return Keep
	}
	switch {
	case goes && !slices.Contains(volume.Finalizers, Finalizer):
		// Dealt with before, or never ours to hold: others' finalizers may keep it for a while.
		return Keep
	case volume.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimDelete:
		return Destroy
	case goes:
		return LetGo
	default:
		return Keep
	}
}

// claimOf keeps the claim only if it is the very one the volume was made for.
func claimOf(volume *core.PersistentVolume, named *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	reference := volume.Spec.ClaimRef
	if named == nil || reference == nil || (reference.UID != "" && reference.UID != named.UID) {
		return nil
	}
	return named
}

// Growth is what is left to do for a claim that asks for more than it has.
type Growth string

const (
	// NoGrowth: it has what it asks for.
	NoGrowth Growth = "none"
	// GrowDisk: the disk has to grow.
	GrowDisk Growth = "grow the disk"
	// TellClaim: the disk has grown, the claim's status does not say so yet.
	TellClaim Growth = "tell the claim"
)

// growthOf compares a bound claim with its volume.
func growthOf(claim *core.PersistentVolumeClaim, volume *core.PersistentVolume, node string) Growth {
	if !isHere(volume, node) || claim.Spec.VolumeName != volume.Name || claimOf(volume, claim) == nil ||
		claim.Status.Phase != core.ClaimBound || claim.DeletionTimestamp != nil || volume.DeletionTimestamp != nil {
		return NoGrowth
	}
	capacity := volume.Spec.Capacity.Storage()
	switch {
	case claim.Spec.Resources.Requests.Storage().Cmp(*capacity) > 0:
		return GrowDisk
	case claim.Status.Capacity.Storage().Cmp(*capacity) < 0:
		return TellClaim
	default:
		return NoGrowth
	}
}

// allowsGrowth: a class that says nothing forbids it.
func allowsGrowth(class *storage.StorageClass) bool {
	return class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}
