package csi

// The decisions about claims and volumes: functions without side effects on objects from the API server.

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
	// Finalizer keeps a PersistentVolume until the driver on its node has handled the file, even when the node is off.
	Finalizer = Driver + "/file"
)

// roundUpSize rounds a size in bytes up to whole mebibytes and to the minimum size of XFS.
func roundUpSize(requested int64) int64 {
	return max((requested+mebibyte-1)/mebibyte*mebibyte, MinDiskSize)
}

func requestedSize(claim *core.PersistentVolumeClaim) int64 {
	return roundUpSize(claim.Spec.Resources.Requests.Storage().Value())
}

// volumeName returns the name of the volume for a claim.
func volumeName(claim *core.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// needsVolume reports whether the claim is unbound and the scheduler has selected this node for it.
func needsVolume(claim *core.PersistentVolumeClaim, node string) bool {
	return claim.Spec.VolumeName == "" && claim.Annotations[selectedNode] == node && claim.DeletionTimestamp == nil
}

// unsupportedReason returns why the driver cannot provision a claim, or an empty string.
func unsupportedReason(claim *core.PersistentVolumeClaim) string {
	if mode := claim.Spec.VolumeMode; mode != nil && *mode != core.PersistentVolumeFilesystem {
		return fmt.Sprintf("driver %s supports volumeMode Filesystem only, not %s", Driver, *mode)
	}
	if claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		return fmt.Sprintf("driver %s does not support spec.dataSource", Driver)
	}
	return ""
}

// volumeFor returns the PersistentVolume for a claim, restricted to this node.
func volumeFor(claim *core.PersistentVolumeClaim, class *storage.StorageClass, node string) *core.PersistentVolume {
	// The default of the API for a StorageClass.
	reclaimPolicy := core.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaimPolicy = *class.ReclaimPolicy
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
			Capacity:    core.ResourceList{core.ResourceStorage: *resource.NewQuantity(requestedSize(claim), resource.BinarySI)},
			AccessModes: claim.Spec.AccessModes,
			PersistentVolumeSource: core.PersistentVolumeSource{
				CSI: &core.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: name, FSType: "xfs"},
			},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeReclaimPolicy: reclaimPolicy,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			VolumeMode:                    &mode,
			NodeAffinity:                  nodeAffinity(node),
		},
	}
}

func nodeAffinity(node string) *core.VolumeNodeAffinity {
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
		MatchExpressions: []core.NodeSelectorRequirement{{
			Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node},
		}},
	}}}}
}

// isOnNode reports whether the volume belongs to this driver and is restricted to this node.
func isOnNode(volume *core.PersistentVolume, node string) bool {
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

// VolumeAction is the action for a volume.
type VolumeAction string

const (
	// KeepVolume changes nothing.
	KeepVolume VolumeAction = "keep"
	// DeleteFileAndVolume deletes the file, then the PersistentVolume.
	DeleteFileAndVolume VolumeAction = "delete"
	// ReleaseVolume removes the finalizer and keeps the file.
	ReleaseVolume VolumeAction = "release"
)

// mayNeedAction reports, for a volume from the cache, whether the loop must read it and its claim from the API server.
func mayNeedAction(volume *core.PersistentVolume, node string) bool {
	released := volume.Status.Phase == core.VolumeReleased || volume.Status.Phase == core.VolumeFailed
	return isOnNode(volume, node) && (volume.DeletionTimestamp != nil || released)
}

// volumeAction returns the action for a volume. The claim is the one in its claimRef; nil when it does not exist or has
// another uid.
func volumeAction(volume *core.PersistentVolume, claim *core.PersistentVolumeClaim, node string) VolumeAction {
	if !mayNeedAction(volume, node) {
		return KeepVolume
	}
	isTerminating := volume.DeletionTimestamp != nil
	if claim != nil && (claim.Spec.VolumeName == volume.Name || !isTerminating) {
		return KeepVolume
	}
	switch {
	case isTerminating && !slices.Contains(volume.Finalizers, Finalizer):
		// This driver has handled it before; finalizers of other controllers may still keep it.
		return KeepVolume
	case volume.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimDelete:
		return DeleteFileAndVolume
	case isTerminating:
		return ReleaseVolume
	default:
		return KeepVolume
	}
}

// matchingClaim returns the claim if the volume was created for it, and nil otherwise.
func matchingClaim(volume *core.PersistentVolume, named *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	reference := volume.Spec.ClaimRef
	if named == nil || reference == nil || (reference.UID != "" && reference.UID != named.UID) {
		return nil
	}
	return named
}

// Expansion is the next operation for a claim that requests more than its capacity.
type Expansion string

const (
	// NoExpansion means that the claim has the requested capacity.
	NoExpansion Expansion = "none"
	// ExpandDisk means that the disk must be expanded.
	ExpandDisk Expansion = "expand disk"
	// UpdateClaimStatus means that the disk is expanded and the status of the claim is outdated.
	UpdateClaimStatus Expansion = "update claim status"
)

// expansionFor compares a bound claim with its volume.
func expansionFor(claim *core.PersistentVolumeClaim, volume *core.PersistentVolume, node string) Expansion {
	if !isOnNode(volume, node) || claim.Spec.VolumeName != volume.Name || matchingClaim(volume, claim) == nil ||
		claim.Status.Phase != core.ClaimBound || claim.DeletionTimestamp != nil || volume.DeletionTimestamp != nil {
		return NoExpansion
	}
	capacity := volume.Spec.Capacity.Storage()
	switch {
	case claim.Spec.Resources.Requests.Storage().Cmp(*capacity) > 0:
		return ExpandDisk
	case claim.Status.Capacity.Storage().Cmp(*capacity) < 0:
		return UpdateClaimStatus
	default:
		return NoExpansion
	}
}

// allowsExpansion reports whether a StorageClass allows expansion; the default is no.
func allowsExpansion(class *storage.StorageClass) bool {
	return class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}
