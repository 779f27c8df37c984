package csi

// The actions of the reconcile loop. The cache only selects candidates: every object is read again from the API server
// before a file or object is created, changed or deleted. Every action can be repeated.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

func (c *Claims) reconcileClaim(ctx context.Context, item workItem) error {
	claim, err := c.claims.PersistentVolumeClaims(item.namespace).Get(item.name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if claim == nil || claim.UID != item.uid || !needsVolume(claim, c.node) {
		if err := c.removePendingFile(ctx, item); err != nil {
			return err
		}
	}
	switch {
	case claim == nil || claim.UID != item.uid:
		return nil
	case claim.Spec.VolumeName == "":
		return c.provision(ctx, claim)
	default:
		return c.grow(ctx, claim)
	}
}

// provision creates the volume of a claim: first the file, then the PersistentVolume.
func (c *Claims) provision(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	if !needsVolume(claim, c.node) {
		return nil
	}
	class, err := c.storageClass(ctx, claim)
	if err != nil || class == nil {
		return err
	}
	claim, err = c.liveClaim(ctx, claim.Namespace, claim.Name, claim.UID)
	if err != nil || claim == nil || !needsVolume(claim, c.node) {
		return err
	}
	name := volumeName(claim)
	if volume, err := c.liveVolume(ctx, name); err != nil || volume != nil {
		// The PersistentVolume exists already; the controller manager binds it.
		return err
	}
	if reason := unsupportedReason(claim); reason != "" {
		c.events.Event(claim, core.EventTypeWarning, "ProvisioningFailed", reason)
		klog.InfoS("claim rejected", "claim", klog.KObj(claim), "reason", reason)
		return nil
	}
	disk, err := c.disks.Disk(name)
	if err != nil {
		return err
	}
	c.pendingFiles.Store(claim.UID, true)
	if err := disk.Create(ctx, requestedSize(claim)); err != nil {
		c.recordWarning(claim, "ProvisioningFailed", err)
		return err
	}
	return c.createVolume(ctx, claim, volumeFor(claim, class, c.node))
}

func (c *Claims) createVolume(ctx context.Context, claim *core.PersistentVolumeClaim, volume *core.PersistentVolume) error {
	_, err := c.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// Either an earlier attempt of this driver created it, or another node did. The retry reads it and decides.
		return fmt.Errorf("volume %s exists already: %w", volume.Name, err)
	}
	if err != nil {
		c.recordWarning(claim, "ProvisioningFailed", err)
		return fmt.Errorf("failed to create volume %s: %w", volume.Name, err)
	}
	c.pendingFiles.Delete(claim.UID)
	c.events.Eventf(claim, core.EventTypeNormal, "ProvisioningSucceeded", "created volume %s", volume.Name)
	klog.InfoS("volume created", "claim", klog.KObj(claim), "volume", volume.Name, "capacity", volume.Spec.Capacity.Storage())
	return nil
}

// removePendingFile removes the file of a claim that was deleted or moved to another node before its volume was created.
func (c *Claims) removePendingFile(ctx context.Context, item workItem) error {
	if _, pending := c.pendingFiles.Load(item.uid); !pending {
		return nil
	}
	claim, err := c.liveClaim(ctx, item.namespace, item.name, item.uid)
	if err != nil {
		return err
	}
	if claim != nil && needsVolume(claim, c.node) {
		return fmt.Errorf("claim %s/%s still needs a volume on this node, the cache is outdated", item.namespace, item.name)
	}
	name := "pvc-" + string(item.uid)
	volume, err := c.liveVolume(ctx, name)
	if err != nil {
		return err
	}
	if volume == nil || !isOnNode(volume, c.node) {
		disk, err := c.disks.Disk(name)
		if err != nil {
			return err
		}
		if err := disk.Remove(ctx); err != nil {
			return err
		}
		klog.InfoS("file of a deleted claim removed", "volume", name)
	}
	c.pendingFiles.Delete(item.uid)
	return nil
}

// grow expands the volume of a bound claim to the requested size.
func (c *Claims) grow(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	volume, err := c.volumes.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if expansionFor(claim, volume, c.node) == NoExpansion {
		return nil
	}
	claim, err = c.liveClaim(ctx, claim.Namespace, claim.Name, claim.UID)
	if err != nil || claim == nil {
		return err
	}
	volume, err = c.liveVolume(ctx, claim.Spec.VolumeName)
	if err != nil || volume == nil {
		return err
	}
	size := volume.Spec.Capacity.Storage().Value()
	switch expansionFor(claim, volume, c.node) {
	case NoExpansion:
		return nil
	case ExpandDisk:
		class, err := c.storageClass(ctx, claim)
		if err != nil {
			return err
		}
		if class == nil || !allowsExpansion(class) {
			c.events.Event(claim, core.EventTypeWarning, "VolumeResizeFailed", "the StorageClass of the claim does not allow volume expansion")
			return nil
		}
		size = requestedSize(claim)
	}
	if err := c.growTo(ctx, claim, volume, size); err != nil {
		c.recordWarning(claim, "VolumeResizeFailed", err)
		return err
	}
	return nil
}

// growTo expands the disk first, then updates the capacity of the volume and the status of the claim, so that no object
// reports a size before the disk has it. The two updates follow directly and without a pending resize condition: a kubelet
// that sees a larger capacity in the volume than in the claim calls NodeExpandVolume in a tight loop.
func (c *Claims) growTo(ctx context.Context, claim *core.PersistentVolumeClaim, volume *core.PersistentVolume, size int64) error {
	disk, err := c.disks.Disk(volume.Spec.CSI.VolumeHandle)
	if err != nil {
		return err
	}
	if err := disk.Grow(ctx, size); err != nil {
		return err
	}
	capacity := core.ResourceList{core.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)}
	if volume.Spec.Capacity.Storage().Value() < size {
		change, err := mergePatch(volume.ResourceVersion, "spec", map[string]any{"capacity": capacity})
		if err != nil {
			return err
		}
		if _, err := c.client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, change, meta.PatchOptions{}); err != nil {
			return fmt.Errorf("failed to update the capacity of volume %s: %w", volume.Name, err)
		}
	}
	change, err := mergePatch("", "status", map[string]any{"capacity": capacity, "allocatedResources": capacity})
	if err != nil {
		return err
	}
	if _, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).
		Patch(ctx, claim.Name, types.MergePatchType, change, meta.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("failed to update the status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	c.events.Eventf(claim, core.EventTypeNormal, "VolumeResizeSuccessful", "volume %s has %s now", volume.Name, capacity.Storage())
	klog.InfoS("volume expanded", "claim", klog.KObj(claim), "volume", volume.Name, "capacity", capacity.Storage())
	return nil
}

// mergePatch returns a merge patch for one part of an object. With a resource version, the API server rejects the patch
// when the object has changed since it was read.
func mergePatch(version, part string, fields map[string]any) ([]byte, error) {
	change := map[string]any{part: fields}
	if version != "" {
		change["metadata"] = map[string]any{"resourceVersion": version}
	}
	return json.Marshal(change)
}

func (c *Claims) reconcileVolume(ctx context.Context, item workItem) error {
	cached, err := c.volumes.Get(item.name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !mayNeedAction(cached, c.node) {
		return err
	}
	volume, err := c.liveVolume(ctx, item.name)
	if err != nil || volume == nil {
		return err
	}
	var claim *core.PersistentVolumeClaim
	if reference := volume.Spec.ClaimRef; reference != nil {
		named, err := c.liveClaim(ctx, reference.Namespace, reference.Name, reference.UID)
		if err != nil {
			return err
		}
		claim = matchingClaim(volume, named)
	}
	switch volumeAction(volume, claim, c.node) {
	case DeleteFileAndVolume:
		if err := c.deleteFileAndVolume(ctx, volume); err != nil {
			c.recordWarning(volume, "VolumeFailedDelete", err)
			return err
		}
	case ReleaseVolume:
		if err := c.dropFinalizer(ctx, volume); err != nil {
			return err
		}
		klog.InfoS("retained volume released, file kept", "volume", volume.Name, "handle", volume.Spec.CSI.VolumeHandle)
	}
	return nil
}

// deleteFileAndVolume deletes the file before the object: an object without a file is reconciled again, while a file
// without an object would stay forever.
func (c *Claims) deleteFileAndVolume(ctx context.Context, volume *core.PersistentVolume) error {
	disk, err := c.disks.Disk(volume.Spec.CSI.VolumeHandle)
	if err != nil {
		return err
	}
	if err := disk.Remove(ctx); err != nil {
		return err
	}
	if volume.DeletionTimestamp == nil {
		uid := meta.Preconditions{UID: &volume.UID}
		err := c.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{Preconditions: &uid})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("failed to delete volume %s: %w", volume.Name, err)
		}
		current, err := c.liveVolume(ctx, volume.Name)
		if err != nil {
			return err
		}
		if current == nil || current.UID != volume.UID {
			klog.InfoS("volume deleted", "volume", volume.Name)
			return nil
		}
		volume = current
	}
	if err := c.dropFinalizer(ctx, volume); err != nil {
		return err
	}
	klog.InfoS("volume deleted", "volume", volume.Name)
	return nil
}

func (c *Claims) dropFinalizer(ctx context.Context, volume *core.PersistentVolume) error {
	if !slices.Contains(volume.Finalizers, Finalizer) {
		return nil
	}
	// The copy keeps the resource version: if the volume has changed meanwhile, the update fails and the loop retries.
	volume = volume.DeepCopy()
	volume.Finalizers = slices.DeleteFunc(volume.Finalizers, func(name string) bool { return name == Finalizer })
	_, err := c.client.CoreV1().PersistentVolumes().Update(ctx, volume, meta.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("failed to remove the finalizer of volume %s: %w", volume.Name, err)
	}
	return nil
}

// storageClass returns the StorageClass of a claim, or nil when it does not exist or belongs to another driver.
func (c *Claims) storageClass(ctx context.Context, claim *core.PersistentVolumeClaim) (*storage.StorageClass, error) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil, nil
	}
	class, err := c.client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read StorageClass %s: %w", *claim.Spec.StorageClassName, err)
	}
	if class.Provisioner != Driver {
		return nil, nil
	}
	return class, nil
}

// liveClaim reads a claim from the API server. It returns nil when the claim does not exist or has another uid; an empty
// uid matches any claim.
func (c *Claims) liveClaim(ctx context.Context, namespace, name string, uid types.UID) (*core.PersistentVolumeClaim, error) {
	claim, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read claim %s/%s: %w", namespace, name, err)
	}
	if uid != "" && claim.UID != uid {
		return nil, nil
	}
	return claim, nil
}

// liveVolume reads a volume from the API server; nil when it does not exist.
func (c *Claims) liveVolume(ctx context.Context, name string) (*core.PersistentVolume, error) {
	volume, err := c.client.CoreV1().PersistentVolumes().Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to read volume %s: %w", name, err)
	}
	return volume, nil
}
